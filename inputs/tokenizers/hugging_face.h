// SPDX-License-Identifier: Apache-2.0
// Byte-pair tokenizers from Hugging Face's tokenizer.json, or from GPT-2's vocab.json and
// merges.txt. Unsupported features are Errors that name them.
#pragma once

#include <memory>
#include <string>

#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// `files` has tokenizer.json and optionally tokenizer_config.json (for start and end tokens).
// Truncation, padding and post-processing are ignored, except for the start token.
std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const std::string& name,
                                                       const TokenizerFiles& files);

// `files` has vocab.json and merges.txt.
std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& name,
                                               const TokenizerFiles& files);

}  // namespace tessera
