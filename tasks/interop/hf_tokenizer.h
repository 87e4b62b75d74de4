// SPDX-License-Identifier: Apache-2.0
// The tokenizer that goes along with an exported model: the files that the run's own was made of.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "inputs/tokenizers/tokenizer.h"
#include "tasks/config/experiment.h"
#include "tasks/interop/hf_config.h"

namespace tessera {

struct HfTokenizer {
  std::map<std::string, std::string> files;  // Content by name.
  HfSpecialIds special;
  std::string remark;  // Why there are no files, where there are none.
};

// The one that the run has kept, or else the training input's, whose data must be there for that;
// if it is not, that is said.
HfTokenizer hf_tokenizer_of(const ExperimentConfig& experiment,
                            const std::filesystem::path& run_directory);
HfTokenizer hf_tokenizer_of(const Tokenizer& tokenizer);

}  // namespace tessera
