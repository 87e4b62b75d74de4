// SPDX-License-Identifier: Apache-2.0
// The files that a tokenizer is made of, and their form as one string: what token files carry
// along, and what an exported model is given.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace tessera {

// Content by file name: "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
// "tokenizer.model".
using TokenizerFiles = std::map<std::string, std::string>;

// Those at a path: one of them, or a directory. Error that says what is missing.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);

std::string definition_of_files(const TokenizerFiles& files);
// Of Tokenizer::definition(); none for tokenizers that are no files ("bytes"). Error for a broken
// one.
TokenizerFiles files_of_definition(const std::string& definition);

}  // namespace tessera
