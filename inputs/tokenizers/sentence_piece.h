// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (*.model), run by the SentencePiece library; texts of more than 128 KiB are
// cut before (long_sentence_piece.h). Bytes that are no UTF-8 are
// encoded as U+FFFD, as the library does.
#pragma once

#include <memory>
#include <string>

#include "inputs/tokenizer.h"
#include "inputs/tokenizers/tokenizer_files.h"

namespace tessera {

// `files` has tokenizer.model.
std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const std::string& name,
                                                         const TokenizerFiles& files);

}  // namespace tessera
