// SPDX-License-Identifier: Apache-2.0
// Whether a SentencePiece model is safe to give to its library, which trusts offsets within the
// model's normalization table and aborts the program on what it cannot make sense of.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Error, beginning with `where`, for a model that is damaged.
void check_sentence_piece_model(std::string_view model, const std::string& where);

}  // namespace tessera
