// SPDX-License-Identifier: Apache-2.0
// Makes any tokenizer by name, path or definition. Unsupported features of a tokenizer's file are
// Errors that name them.
#pragma once

#include <memory>
#include <string>

#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// `name`: "bytes" (byte b is id b + 1, 257 ids; 0 is reserved), or a path: a SentencePiece model
// (*.model), a Hugging Face tokenizer.json or a directory with one, or GPT-2's vocab.json with
// merges.txt beside it. Error with the nearest name, or with what is missing.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// Makes a tokenizer from Tokenizer::definition(); `name` is its name. Error if malformed.
std::unique_ptr<Tokenizer> tokenizer_of_definition(const std::string& name,
                                                   const std::string& definition);

// Makes a tokenizer from its files. In a Hugging Face tokenizer.json, truncation, padding and
// post-processing are ignored, except for the start token.
std::unique_ptr<Tokenizer> tokenizer_of_files(const std::string& name, const TokenizerFiles& files);

// Returns the name of the special token with this id, or "".
std::string special_name(const Tokenizer& tokenizer, int64_t id);

// Returns the tokenizer_config.json of a tokenizer.json. Without it transformers would assume the
// tokenizer class of its first release, and no special tokens.
std::string tokenizer_config_json(const Tokenizer& tokenizer);

}  // namespace tessera
