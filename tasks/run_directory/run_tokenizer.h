// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a run, stored beside hparams.toml, so that decoding needs no data.
#pragma once

#include <filesystem>
#include <memory>

#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// <run>/tokenizer: the tokenizer's name and its definition.
void write_run_tokenizer(const std::filesystem::path& run_directory, const Tokenizer& tokenizer);
// Null if the run has stored none. Error if the file is damaged.
std::unique_ptr<Tokenizer> read_run_tokenizer(const std::filesystem::path& run_directory);

}  // namespace tessera
