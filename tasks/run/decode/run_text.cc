// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/run_text.h"

#include "core/base/error.h"
#include "inputs/checked_input.h"
#include "tasks/run/directory/run_config.h"

namespace tessera {
namespace {

bool begins_with_start_id(const ExperimentConfig& config) {
  const ErrorContext where("input");
  return make_input(config.input)->documents_begin_with_start_id();
}

}  // namespace

Infeed whole_input(const std::filesystem::path& directory) {
  return {.infeed_host_index = 0, .num_infeed_hosts = 1, .run_directory = directory};
}

RunText::RunText(const ExperimentConfig& config, const RunSetting& setting, Needs needs,
                 std::string_view advice)
    : kept_tokenizer_(read_run_tokenizer(setting.job_log_dir)) {
  if (!kept_tokenizer_) {
    try {
      const ErrorContext where("input");
      input_ = make_input(config.input);
      input_->attach(whole_input(setting.input_directory));
    } catch (const Error& error) {
      if (needs == Needs::kText)
        fail(
            "{} has no tokenizer, and its training data, whose tokenizer could be used, cannot be "
            "opened: {}. {}",
            setting.job_log_dir.string(), error.what(), advice);
      input_.reset();
    }
  }
  const Tokenizer* const tokenizer = kept_tokenizer_ ? kept_tokenizer_.get()
                                     : input_        ? input_->tokenizer()
                                                     : nullptr;
  text_.emplace(tokenizer, input_ ? input_->vocab_size() : 0, begins_with_start_id(config));
}

void RunText::set_vocab_size(int64_t vocab_size) {
  if (!kept_tokenizer_ && !input_) text_.emplace(nullptr, vocab_size);
}

}  // namespace tessera
