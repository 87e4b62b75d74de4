// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/training_samples.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

DecodeHParams decode_hparams(const SampleHParams& p, int64_t prompts, const BaseInput& input) {
  DecodeHParams decode;
  decode.strategy = DecodeStrategy::kSample;
  decode.temperature = p.temperature;
  decode.top_k = p.top_k;
  decode.top_p = p.top_p;
  decode.seed = p.seed;
  decode.max_decode_steps = p.length;
  decode.window = trained_window(input);
  decode.long_prompts = LongPrompts::kTruncate;
  decode.batch = std::min<int64_t>(prompts, 16);
  check(decode, "task.train.sample");
  return decode;
}

}  // namespace

TrainingSamples::TrainingSamples(ModelSession& session, const BaseInput& input)
    : text_(input.tokenizer(), input.vocab_size(), input.documents_begin_with_start_id()) {
  const SampleHParams& p = session.train().sample;
  const ErrorContext where("task.train.sample");
  const auto add = [this](const std::vector<int32_t>& ids) {
    examples_.push_back(
        {.number = std::ssize(examples_), .prompt_ids = ids, .prompt = text_.text(ids)});
  };
  for (const std::string& prompt : p.prompts) add(text_.prompt_ids(prompt));
  if (p.prompts.empty()) add(text_.beginning());
  const int64_t prompts = std::ssize(examples_);
  decoding_ = std::make_unique<Decoding>(session, decode_hparams(p, prompts, input), prompts,
                                         longest_prompt(examples_), "samples",
                                         /*keep_cast_weights=*/false);
  keep_range(decode_share(session).range(prompts), &examples_);
}

std::vector<DecodedExample> TrainingSamples::take() {
  std::vector<DecodedExample> examples = examples_;
  decoding_->decode(&examples);
  return examples;
}

int TrainingSamples::report(int64_t step, const StopSignal& stop, RunLog& log, Console& console) {
  std::vector<DecodedExample> examples = examples_;
  if (const int signal = decoding_->decode(&examples, &stop); signal != 0) return signal;
  if (examples.empty()) return 0;  // Not process 0.
  console.info(fmt::format("step {}: samples from the model", step));
  std::vector<std::string> lines;
  std::map<std::string, std::string> pages;
  for (const DecodedExample& example : examples) {
    console.info(sample_view(example));
    pages[fmt::format("samples/prompt_{}", example.number + 1)] = sample_markdown(example);
    for (size_t i = 0; i < example.samples.size(); ++i)
      lines.push_back(sample_line(example, i, step));
  }
  log.samples(step, lines, pages);
  return 0;
}

}  // namespace tessera
