// SPDX-License-Identifier: Apache-2.0
// --mode=decode: reads prompts or documents, and prints or writes what the model continues.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/seconds.h"
#include "inputs/checked_input.h"
#include "tasks/run/decode/decode_examples.h"
#include "tasks/run/decode/decode_program.h"
#include "tasks/run/decode/run_text.h"
#include "tasks/run/modes/checkpoint_runs.h"
#include "tasks/run/session/chosen_checkpoint.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {
namespace {

class DecodeRun final : public BaseRun {
 public:
  DecodeRun(const RunContext& context, const DecodeOptions& options)
      : setting_(context.setting),
        options_(options),
        processes_(context.processes),
        session_(context.config, ModelSession::Purpose::kRunning, context.devices, setting_.devices,
                 processes_, setting_.job_log_dir),
        p_(session_.task().decode()),
        checkpoint_(setting_, options.checkpoint, "decode with", processes_),
        console_(console_mode(setting_, processes_)) {
    look_back_as_trained(context.config);
    if (processes_.is_first()) {
      const bool is_ids = !options.prompt_ids.empty() && options.prompts.empty();
      text_.emplace(context.config, setting_, is_ids ? RunText::Needs::kIds : RunText::Needs::kText,
                    "Give the prompt as token ids: --prompt_ids='1 2 3'");
      if (has_prompts()) {
        take_prompts();
      } else {
        read_datasets(context.config);
      }
    }
    compile(context.config);
  }

  int run() override {
    if (!session_.remark().empty()) console_.info(session_.remark());
    if (session_.pipeline()) console_.info(remark_on_decoding(*session_.pipeline()));
    console_.info(fmt::format("{} in {}, step {}", setting_.experiment,
                              setting_.job_log_dir.string(), checkpoint_.step()));
    if (setting_.dry_run) {
      console_.info("dry run: ready to decode");
      return 0;
    }
    const int64_t count = processes_.all_reduce_max(std::ssize(datasets_), "what to decode");
    datasets_.resize(static_cast<size_t>(count));
    for (Dataset& dataset : datasets_) decode(dataset);
    return 0;
  }

 private:
  // What is decoded; only process 0 knows it.
  struct Dataset {
    std::string name;  // "": the prompts of the command line.
    std::vector<DecodedExample> examples;
  };
  // By default attention reaches back as far as in training.
  void look_back_as_trained(const ExperimentConfig& config) {
    const bool is_given = p_.window != 0 || p_.cache_length != 0;
    if (is_given || p_.strategy == DecodeStrategy::kBeam) return;
    const ErrorContext where("input");
    p_.window = trained_window(*make_input(config.input));
  }

  bool has_prompts() const { return !options_.prompts.empty() || !options_.prompt_ids.empty(); }
  void take_prompts() {
    std::vector<DecodedExample>& examples = datasets_.emplace_back().examples;
    const auto add = [&](const std::vector<int32_t>& ids, const std::string& text) {
      examples.push_back({.number = std::ssize(examples), .prompt_ids = ids, .prompt = text});
    };
    for (const std::string& prompt : options_.prompts) {
      const ErrorPrefix where(fmt::format("--prompt number {}", examples.size() + 1));
      add(text_->text().prompt_ids(prompt), prompt);
    }
    for (const std::string& text : options_.prompt_ids) {
      const ErrorPrefix where(fmt::format("--prompt_ids={}", text));
      const std::vector<int32_t> ids = parse_token_ids(text);
      add(ids, text_->text().text(ids));
    }
  }

  // Checks ids against the model's vocabulary, which is known after compiling.
  void check_prompt_ids() {
    if (!text_) return;
    text_->set_vocab_size(decoding_->vocab_size());
    if (options_.prompt_ids.empty()) return;
    for (const DecodedExample& example : datasets_[0].examples)
      for (const int32_t id : example.prompt_ids)
        if (id >= decoding_->vocab_size())
          fail(
              "--prompt_ids: token id {} is outside the model's vocabulary; expected an id from 0 "
              "to {}",
              id, decoding_->vocab_size() - 1);
  }

  void read_datasets(const ExperimentConfig& config) {
    if (!config.decode_inputs.empty()) {
      for (const auto& [name, input_tpl] : config.decode_inputs)
        read_dataset(name, input_tpl, "decode_inputs");
      return;
    }
    if (config.eval_inputs.empty())
      fail(
          "{} has no decode_inputs and no eval_inputs; give a prompt with --prompt=TEXT or "
          "--prompt_ids=IDS",
          setting_.experiment);
    if (p_.prompt_length == 0)
      fail(
          "there is nothing to decode: give --prompt=TEXT or --prompt_ids=IDS, or --set "
          "task.decode.prompt_length=N to continue the first N tokens of each document of the eval "
          "datasets ({} has no decode_inputs)",
          setting_.experiment);
    for (const auto& [name, input_tpl] : config.eval_inputs)
      read_dataset(name, input_tpl, "eval_inputs");
  }

  void read_dataset(const std::string& name, const Template<BaseInput>& input_tpl,
                    std::string_view field) {
    const ErrorContext where(fmt::format("{}.{}", field, name));
    const std::unique_ptr<BaseInput> input = make_input(input_tpl);
    input->attach(whole_input(setting_.input_directory));
    ExampleSet set = read_examples(*input, p_, text_->text());
    if (set.too_short > 0)
      console_.info(fmt::format("{}: skipped {} documents that are too short for a prompt", name,
                                set.too_short));
    datasets_.push_back({name, std::move(set.examples)});
  }

  void compile(const ExperimentConfig& config) {
    int64_t prompts = 0, longest = 0;
    for (const Dataset& dataset : datasets_) {
      prompts = std::max(prompts, std::ssize(dataset.examples));
      longest = std::max(longest, longest_prompt(dataset.examples));
    }
    prompts = processes_.all_reduce_max(prompts, "what to decode");
    longest = processes_.all_reduce_max(longest, "what to decode");
    decoding_.emplace(session_, p_, prompts, longest);
    check_prompt_ids();
    session_.executor().allocate();
    decoding_->begin(text_ ? &text_->text() : nullptr);
    checkpoint_.restore(session_, config, console_);
  }

  void decode(Dataset& dataset) {
    const auto begin = std::chrono::steady_clock::now();
    decoding_->decode(&dataset.examples);
    if (!processes_.is_first()) return;
    int64_t tokens = 0;
    for (const DecodedExample& example : dataset.examples)
      for (const DecodedSample& sample : example.samples) tokens += std::ssize(sample.ids);
    const double seconds = seconds_since(begin);
    const std::string speed = fmt::format("{} tokens in {:.1f} s, {} tokens/s", tokens, seconds,
                                          count_text(static_cast<double>(tokens) / seconds));
    if (dataset.name.empty()) {
      const SampleIds ids = options_.print_ids ? SampleIds::kShown : SampleIds::kHidden;
      for (const DecodedExample& example : dataset.examples)
        console_.info(sample_view(example, ids));
      console_.info(speed);
      return;
    }
    const std::filesystem::path file =
        write_decoder_out(setting_.job_log_dir, dataset.name, checkpoint_.step(), dataset.examples);
    console_.info(fmt::format("{}: {} prompts continued in {} ({})", dataset.name,
                              dataset.examples.size(), file.string(), speed));
  }

  RunSetting setting_;
  DecodeOptions options_;
  ProcessGroup& processes_;
  ModelSession session_;
  DecodeHParams p_;
  ChosenCheckpoint checkpoint_;
  Console console_;
  std::optional<RunText> text_;  // In process 0.
  std::vector<Dataset> datasets_;
  std::optional<Decoding> decoding_;
};

}  // namespace

std::unique_ptr<BaseRun> decode_run(const RunContext& context, const DecodeOptions& options) {
  return std::make_unique<DecodeRun>(context, options);
}

}  // namespace tessera
