// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/training_samples.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "tasks/decode/decode_examples.h"

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
  decode.window = sequence_length(input);
  decode.long_prompts = LongPrompts::kTruncate;
  decode.batch = std::min<int64_t>(prompts, 16);
  check(decode, "task.train.sample");
  return decode;
}

}  // namespace

TrainingSamples::TrainingSamples(ModelSession& session, const BaseInput& input)
    : text_(input.tokenizer(), input.vocab_size()) {
  const SampleHParams& p = session.train().sample;
  const ErrorContext where("task.train.sample");
  const auto add = [this](std::vector<int32_t> ids) {
    DecodedExample example;
    example.number = std::ssize(prompts_);
    example.prompt = text_.text(ids);
    example.prompt_ids = std::move(ids);
    prompts_.push_back(std::move(example));
  };
  for (const std::string& prompt : p.prompts) add(text_.prompt_ids(prompt));
  if (p.prompts.empty()) add(text_.beginning());
  int64_t longest = 0;
  for (const DecodedExample& each : prompts_)
    longest = std::max(longest, std::ssize(each.prompt_ids));
  decoding_.emplace(session, decode_hparams(p, std::ssize(prompts_), input), std::ssize(prompts_),
                    longest, "samples", /*keep_cast_weights=*/false);
}

void TrainingSamples::begin() { decoding_->begin(&text_); }

std::vector<DecodedExample> TrainingSamples::take() {
  std::vector<std::vector<int32_t>> prompts;
  for (const DecodedExample& each : prompts_) prompts.push_back(each.prompt_ids);
  auto samples = decoding_->decode(prompts);
  std::vector<DecodedExample> examples;
  for (size_t i = 0; i < samples.size(); ++i) {
    examples.push_back(prompts_[i]);
    examples.back().samples = std::move(samples[i]);
  }
  return examples;
}

void report_samples(TrainingSamples& samples, int64_t step, RunLog& log, Console& console) {
  const std::vector<DecodedExample> examples = samples.take();
  if (examples.empty()) return;  // Not process 0.
  console.info(fmt::format("step {}: a sample of what it has learnt", step));
  for (const DecodedExample& example : examples) console.info(sample_view(example));
  std::vector<std::string> lines;
  std::map<std::string, std::string> pages;
  for (const DecodedExample& example : examples) {
    pages[fmt::format("samples/prompt_{}", example.number + 1)] = sample_markdown(example);
    for (size_t i = 0; i < example.samples.size(); ++i)
      lines.push_back(sample_line(example, i, step));
  }
  log.samples(step, lines, pages);
}

}  // namespace tessera
