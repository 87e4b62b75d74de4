// SPDX-License-Identifier: Apache-2.0
// The tokenizer files of an exported model: those from which the run's tokenizer was made.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "inputs/tokenizers/tokenizer.h"
#include "tasks/config/experiment.h"
#include "tasks/interop/hf_config.h"

namespace tessera {

struct HfTokenizer {
  std::map<std::string, std::string> files;  // Content by file name.
  HfSpecialIds special;
  std::string remark;  // Why there are no files, or "".
};

// The run's tokenizer, or else that of the training input, whose data must then exist; if they do
// not, the remark says so.
HfTokenizer hf_tokenizer_of(const ExperimentConfig& experiment,
                            const std::filesystem::path& run_directory);
HfTokenizer hf_tokenizer_of(const Tokenizer& tokenizer);

}  // namespace tessera
