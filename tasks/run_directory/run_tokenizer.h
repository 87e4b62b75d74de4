// SPDX-License-Identifier: Apache-2.0
// A run's tokenizer, kept in its directory beside hparams.toml: whoever decodes needs no data.
#pragma once

#include <filesystem>
#include <memory>

#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// <run>/tokenizer: the tokenizer's name and its definition.
void write_run_tokenizer(const std::filesystem::path& run_directory, const Tokenizer& tokenizer);
// Null if the run has kept none. Error for a file that is broken.
std::unique_ptr<Tokenizer> read_run_tokenizer(const std::filesystem::path& run_directory);

}  // namespace tessera
