// SPDX-License-Identifier: Apache-2.0
// Converts prompts to ids and ids to text with a tokenizer, or as numbers if the data have none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/base_input.h"
#include "inputs/tokenizers/tokenizer.h"
#include "tasks/run/decode/sampler.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

class PromptText {
 public:
  // `tokenizer` may be null; it outlives this. Without one, ids are below `vocab_size`.
  // `begins_with_start_id`: whether prompts do, like the documents of the training data
  // (BaseInput).
  PromptText(const Tokenizer* tokenizer, int64_t vocab_size, bool begins_with_start_id = false);

  // Names of special tokens become their ids. The start id is added where documents begin with it,
  // unless the prompt gives it. Error for an empty prompt, and without a tokenizer for anything but
  // ids.
  std::vector<int32_t> prompt_ids(std::string_view prompt) const;
  // The ids before a text without a prompt: those after the end of a document.
  std::vector<int32_t> beginning() const;
  std::string text(const std::vector<int32_t>& ids) const;
  // The text that `ids` add to `prompt`.
  std::string continuation(const std::vector<int32_t>& prompt,
                           const std::vector<int32_t>& ids) const;
  // The id of a token's name or of a number. Error with the nearest name.
  int32_t id_of(const std::string& token) const;
  std::optional<int32_t> end_id() const;
  bool begins_with_start_id() const { return begins_with_start_id_; }
  // Sets the model's vocabulary size, which may be larger. Error if it is smaller.
  DrawableIds drawable_ids(int64_t model_vocab_size) const;

 private:
  bool gives_start_id(std::string_view prompt, const std::vector<int32_t>& ids) const;
  int32_t checked_id(std::string_view number) const;
  int32_t start_id() const { return tokenizer_ != nullptr ? tokenizer_->start_id() : 0; }

  const Tokenizer* tokenizer_;
  int64_t vocab_size_;
  bool begins_with_start_id_;
};

// Parses ids separated by spaces or commas. Error if the text has no id, or one that is not valid.
std::vector<int32_t> parse_token_ids(std::string_view text);
// The ids separated by spaces.
std::string token_ids_text(const std::vector<int32_t>& ids);

// The infeed of a process that reads a whole input.
Infeed whole_input(const std::filesystem::path& directory);

// The text of a run: its tokenizer, or else that of its training data, for modes that read a
// trained model.
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
