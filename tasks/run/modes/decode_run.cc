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
#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/session/run_over_checkpoints.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {
namespace {

class DecodeRun final : public RunOverCheckpoints {
 public:
  DecodeRun(const RunContext& context, const DecodeOptions& options)
      : RunOverCheckpoints(context, options.checkpoint, "decode with"), options_(options) {
    begin();
  }

 private:
  // What this process decodes.
  struct Dataset {
    std::string name;  // "": the prompts of the command line.
    std::vector<DecodedExample> examples;
    int64_t total = 0;  // In all processes.
  };

  ModelSession& open_session() override {
    session_.emplace(config_, ModelSession::Purpose::kRunning, devices_, setting_.devices,
                     processes_, setting_.job_log_dir);
    p_ = session_->task().decode();
    look_back_as_trained();
    open_text();
    if (has_prompts()) {
      take_prompts();
    } else {
      for (const auto& [name, input_tpl] : inputs()) read_dataset(name, input_tpl);
    }
    compile();
    if (!session_->remark().empty()) console_.info(session_->remark());
    if (session_->pipeline()) console_.info(remark_on_decoding(*session_->pipeline()));
    return *session_;
  }

  // Process 0 first: it may create a snapshot of the training data that the others read.
  void open_text() {
    if (!processes_.is_first()) processes_.barrier("opening the tokenizer");
    const bool is_ids = !options_.prompt_ids.empty() && options_.prompts.empty();
    text_.emplace(config_, setting_, is_ids ? RunText::Needs::kIds : RunText::Needs::kText,
                  "Give the prompt as token ids: --prompt_ids='1 2 3'");
    if (processes_.is_first()) processes_.barrier("opening the tokenizer");
  }

  // By default attention reaches back as far as in training.
  void look_back_as_trained() {
    const bool is_given = p_.window != 0 || p_.cache_length != 0;
    if (is_given || p_.strategy == DecodeStrategy::kBeam) return;
    const ErrorContext where("input");
    p_.window = trained_window(*make_input(config_.input));
  }

  bool has_prompts() const { return !options_.prompts.empty() || !options_.prompt_ids.empty(); }
  void take_prompts() {
    auto& [name, examples, total] = datasets_.emplace_back();
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
    total = std::ssize(examples);
  }

  // Checks ids against the model's vocabulary, which is known after compiling.
  void check_prompt_ids() {
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

  // The datasets, if there are no prompts.
  const std::map<std::string, Template<BaseInput>>& inputs() const {
    if (!config_.decode_inputs.empty()) return config_.decode_inputs;
    if (config_.eval_inputs.empty())
      fail(
          "{} has no decode_inputs and no eval_inputs; give a prompt with --prompt=TEXT or "
          "--prompt_ids=IDS",
          setting_.experiment);
    return config_.eval_inputs;
  }

  void read_dataset(const std::string& name, const Template<BaseInput>& input_tpl) {
    const bool is_eval = config_.decode_inputs.empty();
    if (is_eval && p_.prompt_length == 0)
      fail(
          "there is nothing to decode: give --prompt=TEXT or --prompt_ids=IDS, or --set "
          "task.decode.prompt_length=N to continue the first N tokens of each document of the eval "
          "datasets ({} has no decode_inputs)",
          setting_.experiment);
    const ErrorContext where(fmt::format("{}.{}", is_eval ? "eval_inputs" : "decode_inputs", name));
    const std::unique_ptr<BaseInput> input = make_input(input_tpl);
    const DecodeShare share = decode_share(*session_);
    input->attach(share.infeed(*input, setting_.input_directory));
    ExampleSet set = read_examples(*input, p_, text_->text(), share, processes_);
    if (set.too_short > 0)
      console_.info(fmt::format("{}: skipped {} documents that are too short for a prompt", name,
                                set.too_short));
    datasets_.push_back({name, std::move(set.examples), set.total});
  }

  std::filesystem::path output(const std::string& dataset, int64_t step) const {
    return setting_.job_log_dir / "decoder_out" / dataset / fmt::format("step_{:010}.jsonl", step);
  }

  bool is_done(int64_t step) const override {
    return !has_prompts() && std::ranges::all_of(inputs(), [&](const auto& dataset) {
      return std::filesystem::exists(output(dataset.first, step));
    });
  }

  std::string heading(int64_t step) const override {
    return fmt::format("{} in {}, step {}", setting_.experiment, setting_.job_log_dir.string(),
                       step);
  }

  int64_t use(const CheckpointInfo& info, const StopSignal& stop) override {
    for (const Dataset& dataset : datasets_)
      if (const int64_t signal = decode(info.step, dataset, stop); signal != 0) return signal;
    return 0;
  }

  void compile() {
    int64_t prompts = 0, longest = 0;
    for (const Dataset& dataset : datasets_) {
      prompts = std::max(prompts, dataset.total);
      longest = std::max(longest, longest_prompt(dataset.examples));
    }
    longest = processes_.all_reduce_max(longest, "what to decode");
    decoding_.emplace(*session_, p_, prompts, longest);
    check_prompt_ids();
    if (has_prompts())
      keep_range(decode_share(*session_).range(prompts), &datasets_.front().examples);
    session_->executor().allocate();
    decoding_->begin(&text_->text());
  }

  // Returns the signal at which it ended early, or 0.
  int64_t decode(int64_t step, const Dataset& dataset, const StopSignal& stop) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<DecodedExample> examples = dataset.examples;
    const int signal = decoding_->decode(&examples, &stop);
    if (signal != 0 || !processes_.is_first()) return signal;
    int64_t tokens = 0;
    for (const DecodedExample& example : examples)
      for (const DecodedSample& sample : example.samples) tokens += std::ssize(sample.ids);
    const double seconds = seconds_since(begin);
    const std::string speed = fmt::format("{} tokens in {:.1f} s, {} tokens/s", tokens, seconds,
                                          count_text(static_cast<double>(tokens) / seconds));
    if (dataset.name.empty()) {
      const SampleIds ids = options_.print_ids ? SampleIds::kShown : SampleIds::kHidden;
      for (const DecodedExample& example : examples) console_.info(sample_view(example, ids));
      console_.info(speed);
      return 0;
    }
    const std::filesystem::path file = output(dataset.name, step);
    write_samples(file, examples);
    console_.info(fmt::format("{}: {} prompts continued in {} ({})", dataset.name, examples.size(),
                              file.string(), speed));
    return 0;
  }

  DecodeOptions options_;
  std::optional<ModelSession> session_;  // None until there is a checkpoint.
  DecodeHParams p_;
  std::optional<RunText> text_;
  std::vector<Dataset> datasets_;
  std::optional<Decoding> decoding_;
};

}  // namespace

std::unique_ptr<BaseRun> decode_run(const RunContext& context, const DecodeOptions& options) {
  return std::make_unique<DecodeRun>(context, options);
}

}  // namespace tessera
