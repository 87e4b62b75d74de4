// SPDX-License-Identifier: Apache-2.0
// The text of a run: its tokenizer, or else that of its training data, for modes that read a
// trained model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "inputs/base_input.h"
#include "inputs/tokenizers/tokenizer.h"
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// The infeed of a process that reads a whole input.
Infeed whole_input(const std::filesystem::path& directory);

class RunText {
 public:
  // What a run without a tokenizer needs: text, so that it is an error if the training data cannot
  // be opened either; or only ids, as of an imported model. `advice` ends the error.
  enum class Needs { kText, kIds };
  RunText(const ExperimentConfig& config, const RunSetting& setting, Needs needs,
          std::string_view advice);

  // Ids are checked against the model's vocabulary if neither a tokenizer nor data are known.
  void set_vocab_size(int64_t vocab_size);
  const PromptText& text() const { return *text_; }

 private:
  std::unique_ptr<Tokenizer> kept_tokenizer_;
  std::unique_ptr<BaseInput> input_;  // The training input, if its tokenizer is needed.
  std::optional<PromptText> text_;
};

}  // namespace tessera
