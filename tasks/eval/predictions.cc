// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/predictions.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using PredictMetrics = std::map<std::string, std::unique_ptr<PredictMetric>>;

PredictMetrics make_metrics(const EvalHParams& p) {
  PredictMetrics metrics;
  for (const auto& [name, metric_tpl] : p.predict_metrics) {
    const ErrorContext where("predict_metrics." + name);
    if (!metric_tpl.has()) fail("no metric is given; expected the name of a PredictMetric");
    metrics[name] = metric_tpl.instantiate();
  }
  return metrics;
}

// Numbers as text that reads back to the same bits.
std::string text_of(const std::vector<double>& values) {
  std::vector<uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<uint64_t>(value));
  return fmt::format("{} ", fmt::join(bits, " "));
}

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> values;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find(' ', begin);
    uint64_t bits = 0;
    std::from_chars(text.data() + begin, text.data() + end, bits);
    values.push_back(std::bit_cast<double>(bits));
    begin = end + 1;
  }
  return values;
}

}  // namespace

std::vector<std::string> Predictions::names(const EvalHParams& p) {
  std::vector<std::string> names;
  for (const auto& [metric, made] : make_metrics(p))
    for (const std::string& name : made->names()) names.push_back(metric + "/" + name);
  return names;
}

Predictions::Predictions(ModelSession& session, const std::string& dataset,
                         const Template<BaseInput>& input_tpl, const EvalHParams& p,
                         const std::filesystem::path& run_directory)
    : p_(p), decode_(p.decode.value_or(session.task().decode())) {
  check(decode_, fmt::format("eval.datasets.{}.decode", dataset));
  ProcessGroup& processes = session.processes();
  int64_t longest = 0;
  if (processes.is_first()) read(dataset, input_tpl, run_directory);
  for (const DecodedExample& example : examples_)
    longest = std::max(longest, std::ssize(example.prompt_ids));
  const int64_t count = processes.all_reduce_max(std::ssize(examples_), "what to decode");
  longest = processes.all_reduce_max(longest, "what to decode");
  decoding_.emplace(session, decode_, count, longest, "eval/" + dataset);
}

void Predictions::read(const std::string& dataset, const Template<BaseInput>& input_tpl,
                       const std::filesystem::path& run_directory) {
  const ErrorContext where("eval_inputs." + dataset);
  input_ = input_tpl.instantiate();
  input_->attach({.infeed_host_index = 0, .num_infeed_hosts = 1, .run_directory = run_directory});
  if (input_->repeats() && decode_.num_examples < 0)
    fail(
        "predict_metrics read the whole set, but its input repeats without end; set "
        "eval.datasets.{}.decode.num_examples",
        dataset);
  text_.emplace(input_->tokenizer(), input_->vocab_size());
  examples_ = read_examples(*input_, decode_, *text_).examples;
}

void Predictions::begin() { decoding_->begin(text_ ? &*text_ : nullptr); }

std::map<std::string, double> Predictions::run(ProcessGroup& processes) {
  std::vector<std::vector<int32_t>> prompts;
  for (const DecodedExample& example : examples_) prompts.push_back(example.prompt_ids);
  std::vector<std::vector<DecodedSample>> samples = decoding_->decode(prompts);
  std::string text;
  if (processes.is_first()) text = text_of(score(std::move(samples)));
  const std::vector<double> numbers =
      numbers_of(processes.broadcast(text, "metrics of generated text"));
  const std::vector<std::string> all = names(p_);
  CHECK(numbers.size() == all.size());
  std::map<std::string, double> values;
  for (size_t i = 0; i < all.size(); ++i) values[all[i]] = numbers[i];
  return values;
}

// In the order of `names`.
std::vector<double> Predictions::score(std::vector<std::vector<DecodedSample>> samples) const {
  const PredictMetrics metrics = make_metrics(p_);
  for (size_t i = 0; i < samples.size(); ++i) {
    DecodedExample example = examples_[i];
    example.samples = std::move(samples[i]);
    for (const auto& [name, metric] : metrics) {
      const ErrorContext where("predict_metrics." + name);
      metric->add(example);
    }
  }
  std::vector<double> numbers;
  for (const auto& [metric, made] : metrics) {
    const ErrorContext where("predict_metrics." + metric);
    const std::map<std::string, double> values = made->values();
    for (const std::string& name : made->names()) {
      const auto found = values.find(name);
      if (found == values.end()) fail("it gave no '{}', which it names", name);
      numbers.push_back(found->second);
    }
  }
  return numbers;
}

}  // namespace tessera
