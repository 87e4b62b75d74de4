// SPDX-License-Identifier: Apache-2.0
// Converts a SentencePiece model to a tokenizer.json for the library `tokenizers` that gives the
// same ids, because transformers does not read SentencePiece models by default.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct HfSentencePiece {
  std::string json;    // "" if the library cannot reproduce this model's ids;
  std::string reason;  // then the reason.
};

// Errors begin with `where`.
HfSentencePiece hf_sentence_piece(std::string_view model, const std::string& where);

}  // namespace tessera
