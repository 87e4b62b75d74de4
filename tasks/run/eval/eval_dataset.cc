// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/eval/eval_dataset.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>
#include <ranges>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kLogPplx = "log_pplx";
constexpr const char* kPerplexity = "perplexity";
constexpr const char* kBitsPerByte = "bits_per_byte";
constexpr const char* kWeight = "weight";

// Whether the batch may have a label that counts: weights that are absent are 1.
bool has_label(const Batch& batch) {
  return std::ranges::all_of(std::array{"weights", "eval_sample_weights"}, [&](const char* name) {
    const auto found = batch.find(name);
    if (found == batch.end() || found->second.dtype != DType::kF32) return true;
    const std::span weights(found->second.data<float>(),
                            found->second.bytes.size() / sizeof(float));
    return std::ranges::any_of(weights, [](float weight) { return weight > 0.0f; });
  });
}

// Writes one line in the format of docs/formats.md.
void write_example(const ScoredExample& example, NewFile& file) {
  const auto list = [](const auto& values) { return fmt::format("[{}]", fmt::join(values, ", ")); };
  JsonLine line;
  line.add("example", example.number);
  if (!example.source.empty()) line.add("source", example.source);
  const HostArray& labels = example.row.at("labels");
  line.add_raw("labels", list(std::span(labels.data<int32_t>(), labels.bytes.size() / 4)));
  const auto number = [](float each) {
    return std::isfinite(each) ? fmt::to_string(each) : "null";
  };
  line.add_raw("log_probs", list(example.log_probs | std::views::transform(number)));
  const std::string text = line.text() + "\n";
  file.write(std::as_bytes(std::span(text)));
}

}  // namespace

EvalDataset::EvalDataset(std::string name, const EvalHParams& p, int64_t num_batches,
                         OpenedInput opened)
    : name_(std::move(name)), p_(p), num_batches_(num_batches), opened_(std::move(opened)) {
  const ErrorContext where("eval.datasets." + name_);
  if (!p_.reset_for_eval && num_batches_ == -1)
    fail(
        "reset_for_eval=false continues where the last evaluation stopped, which needs a "
        "num_batches of at least 1; got -1 (the whole set)");
  if (opened_.attached) {
    check_reach();
    sources_ = input().sources();
    if (sources_.size() < 2) sources_.clear();
  }
  check_metric_names();
  make_score_metrics(p_);  // Reports errors before the run.
  make_predict_metrics(p_);
}

void EvalDataset::check_metric_names() const {
  const auto check = [&](const std::string& kind, const std::string& metric) {
    if (metric.empty() || metric.find('/') != std::string::npos)
      fail("{}: '{}' is not a valid name; expected one without '/'", kind, metric);
    if (std::find(sources_.begin(), sources_.end(), metric) != sources_.end())
      fail("{}.{}: a source of the dataset has the same name; rename the metric", kind, metric);
  };
  for (const auto& [metric, unused] : p_.score_metrics) check("score_metrics", metric);
  for (const auto& [metric, unused] : p_.predict_metrics) {
    check("predict_metrics", metric);
    if (p_.score_metrics.contains(metric))
      fail("predict_metrics.{}: score_metrics has a metric of the same name; rename one of them",
           metric);
  }
}

// A limited number of batches needs an input that repeats, or one with an end.
void EvalDataset::check_reach() const {
  if (!p_.reset_for_eval && !input().repeats())
    fail(
        "reset_for_eval=false reads on through the data, but its input ends; set "
        "eval_inputs.{}.repeat=true, or reset_for_eval=true",
        name_);
  if (num_batches_ == -1 && input().repeats())
    fail(
        "num_batches is -1 (the whole set), but its input repeats without end; set num_batches, or "
        "eval_inputs.{}.repeat=false",
        name_);
}

void EvalDataset::compile_predictions(ModelSession& session, const Template<BaseInput>& input_tpl,
                                      const std::filesystem::path& run_directory) {
  if (p_.predict_metrics.empty()) return;
  predictions_ = std::make_unique<Predictions>(session, name_, input_tpl, p_, run_directory);
}

void EvalDataset::begin(const EvalProgram& program, LookupBounds bounds) {
  bounds_ = std::move(bounds);
  if (predictions_) predictions_->begin();
  program_.emplace(program);
  const bool knows_bytes = input().tokenizer() != nullptr;
  model_names_ = reported_names(program.metrics(), knows_bytes);
  source_names_ = reported_names(program.row_metrics(), knows_bytes);
  if (!program.row_metrics().empty()) return;
  const ErrorContext where("eval.datasets." + name_);
  if (scores_tokens())
    fail(
        "score_metrics and write_examples need the score of each example, which this model does "
        "not output (ModelOutput::terms)");
  sources_.clear();
}

std::vector<std::string> EvalDataset::metric_names() const {
  std::vector<std::string> names = model_names_;
  for (const std::string& source : sources_)
    for (const std::string& name : source_names_) names.push_back(source + "/" + name);
  std::ranges::copy(make_score_metrics(p_).names(), std::back_inserter(names));
  std::ranges::copy(make_predict_metrics(p_).names(), std::back_inserter(names));
  return names;
}

void EvalDataset::fail_without_labels() const {
  fail(
      "eval dataset '{}' has nothing to score: no label has a weight above 0; check its path and "
      "split, or train without it (--set eval_inputs={{}})",
      name_);
}

void EvalDataset::require_labels(ProcessGroup& processes) {
  const ErrorContext where("eval_inputs." + name_);
  enum Found : int64_t { kEnd, kPadding, kLabel };
  BaseInput& input = *opened_.input;
  int64_t found = kPadding;
  for (int64_t taken = 0; found == kPadding && taken != num_batches_; ++taken) {
    if (num_batches_ < 0) check_that_it_ends(input, taken);
    const std::optional<Batch> batch = input.get_next();
    found = processes.all_reduce_max(!batch              ? kEnd
                                     : has_label(*batch) ? kLabel
                                                         : kPadding,
                                     "the first batch of evaluation");
  }
  input.reset();
  if (found != kLabel) fail_without_labels();
}

EvalDataset::Result EvalDataset::run(ProcessGroup& processes, const EvalMonitor& monitor) {
  const ErrorContext where("eval_inputs." + name_);
  CHECK(program_.has_value());
  UserMetrics<ScoreMetric> metrics = make_score_metrics(p_);
  Result result;
  result.scores = DatasetScores(sources_.size());
  if (p_.reset_for_eval) opened_.input->reset();
  const bool is_written = p_.write_examples && monitor.examples_file;
  std::optional<NewFile> file;
  if (is_written && processes.is_first()) file.emplace(monitor.examples_file(name_));
  TakeExample take;
  if (is_written || !metrics.empty())
    take = [&](const ScoredExample& example) {
      metrics.add(example);
      if (file) write_example(example, *file);
    };
  result.signal = score(processes, monitor, &result, take);
  if (p_.reset_for_eval) opened_.input->reset();
  if (result.signal != 0) return result;
  if (file) file->finish();
  if (result.scores.whole().weight(std::string(names::kLoss)) <= 0.0) fail_without_labels();
  result.metrics = reported_values(result.scores.whole(), model_names_);
  result.histograms = result.scores.whole().histograms();
  for (size_t i = 0; i < sources_.size(); ++i)
    for (const auto& [name, value] : reported_values(result.scores.by_source()[i], source_names_))
      result.metrics[sources_[i] + "/" + name] = value;
  result.metrics.merge(metrics.values());
  if (predictions_) result.signal = predictions_->run(processes, monitor.stop, &result.metrics);
  return result;
}

int EvalDataset::score(ProcessGroup& processes, const EvalMonitor& monitor, Result* result,
                       const TakeExample& take) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point quiet_until = Clock::now() + std::chrono::seconds(1);
  BaseInput& input = *opened_.input;
  int64_t taken = 0;
  for (; num_batches_ < 0 || taken < num_batches_; ++taken) {
    if (num_batches_ < 0) check_that_it_ends(input, taken);
    std::optional<Batch> batch = input.get_next();
    if (batch) check_batch(*batch, bounds_, fmt::format("batch {}", taken));
    // All processes end together; an unreadable batch is reported here, too.
    const int signal = monitor.stop == nullptr ? 0 : monitor.stop->requested();
    const int64_t agreed =
        processes.all_reduce_max(2 * signal + (batch ? 1 : 0), "a batch of evaluation");
    if (agreed > 1) return static_cast<int>(agreed / 2);
    if (agreed == 0) break;
    if (!batch) batch = padding_batch(input.specification());
    const ScoredBatch scored = program_->run(*batch);
    result->scores.add(scored);
    if (take) add_examples(*batch, scored, taken * input.global_batch_size(), take, processes);
    input.recycle(std::move(*batch));
    if (monitor.progress && Clock::now() >= quiet_until)
      monitor.progress(fmt::format("evaluating {}: {}{} batches", name_, taken + 1,
                                   num_batches_ < 0 ? "" : fmt::format("/{}", num_batches_)));
  }
  if (num_batches_ > taken && !std::exchange(has_remarked_, true))
    result->remark = fmt::format(
        "eval.datasets.{}: num_batches is {}, but the dataset ends after {}; all of it is scored",
        name_, num_batches_, taken);
  return 0;
}

void EvalDataset::add_examples(const Batch& local, const ScoredBatch& scored, int64_t first,
                               const TakeExample& take, ProcessGroup& processes) const {
  const int64_t rows = input().global_batch_size();
  const std::span log_probs(scored.log_probs);
  const size_t labels = log_probs.size() / static_cast<size_t>(rows);
  const Batch batch = gather_rows(local, opened_.rows, rows, processes);
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!scored.sample_weights.empty() && scored.sample_weights[at] == 0.0f) continue;
    std::map<std::string, ExampleScore> scores;
    for (const auto& [name, of_rows] : scored.rows) scores[name] = of_rows[at];
    if (scores.at(std::string(names::kLoss)).weight == 0.0) continue;
    const Batch row = row_of_batch(batch, i);
    const std::string_view source =
        sources_.empty() ? std::string_view() : sources_[static_cast<size_t>(scored.sources[at])];
    take({first + i, source, row, scores, log_probs.subspan(at * labels, labels)});
  }
}

void EvalDataset::restore(const InputState& state) {
  const ErrorContext where("eval_inputs." + name_);
  opened_.input->restore(state);
}

std::vector<std::string> reported_names(const std::vector<std::string>& model_metrics,
                                        bool knows_bytes) {
  std::vector<std::string> names = model_metrics;
  const bool has_log_pplx = std::find(names.begin(), names.end(), kLogPplx) != names.end();
  names.emplace_back(kWeight);
  if (has_log_pplx) names.emplace_back(kPerplexity);
  if (has_log_pplx && knows_bytes) names.emplace_back(kBitsPerByte);
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, double> reported_values(const MetricMeans& means,
                                              const std::vector<std::string>& names) {
  const std::map<std::string, double> all = means.means();
  const auto mean = [&](const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  };
  std::map<std::string, double> values;
  for (const std::string& name : names) {
    if (name == kWeight) {
      values[name] = means.weight(kLoss);
    } else if (name == kPerplexity) {
      values[name] = plain_nan(std::exp(mean(kLogPplx)));
    } else {
      values[name] = mean(name);
    }
  }
  return values;
}

void DatasetScores::add(const ScoredBatch& batch) {
  MetricMeans totals = batch.totals;
  for (const auto& [name, rows] : batch.rows) totals.remove(name);
  whole_.add(totals);
  if (batch.rows.empty()) return;
  const size_t rows = batch.rows.begin()->second.size();
  for (size_t row = 0; row < rows; ++row) {
    if (!batch.sample_weights.empty() && batch.sample_weights[row] == 0.0f) continue;
    add_row(batch, row, &whole_);
    if (by_source_.empty() || batch.sources.empty()) continue;
    const int32_t source = batch.sources[row];
    CHECK(source >= 0 && static_cast<size_t>(source) < by_source_.size(), "source {}", source);
    add_row(batch, row, &by_source_[static_cast<size_t>(source)]);
  }
}

void DatasetScores::add_row(const ScoredBatch& batch, size_t row, MetricMeans* means) const {
  for (const auto& [name, rows] : batch.rows) means->add(name, rows[row].sum, rows[row].weight);
  const auto log_pplx = batch.rows.find(kLogPplx);
  if (log_pplx == batch.rows.end() || batch.label_bytes.empty()) return;
  const double share = batch.sample_weights.empty() ? 1.0 : batch.sample_weights[row];
  means->add(kBitsPerByte, log_pplx->second[row].sum / std::numbers::ln2,
             share * batch.label_bytes[row]);
}

}  // namespace tessera
