// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model as the tokenizer.json that the library `tokenizers` reads, with the same
// ids: transformers does not read SentencePiece models of its own accord.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct HfSentencePiece {
  std::string json;    // "" if the library cannot give this model's ids,
  std::string reason;  // which says why.
};

// Errors begin with `where`.
HfSentencePiece hf_sentence_piece(std::string_view model, const std::string& where);

}  // namespace tessera
