// SPDX-License-Identifier: Apache-2.0
// Byte-pair tokenizers from files: Hugging Face's tokenizer.json, and GPT-2's vocab.json with
// merges.txt. What a file asks for and we do not have is an error that names it.
#pragma once

#include <memory>
#include <string>

#include "inputs/tokenizer.h"
#include "inputs/tokenizers/tokenizer_files.h"

namespace tessera {

// `files` has tokenizer.json, and tokenizer_config.json perhaps (which names the start and end
// tokens). Its truncation, padding and post-processor are not ours to do, but for the start token.
std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const std::string& name,
                                                       const TokenizerFiles& files);

// `files` has vocab.json and merges.txt.
std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& name,
                                               const TokenizerFiles& files);

}  // namespace tessera
