// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr std::string_view kTag = "tag";  // In place of a dataset: "eval/tag/<tag>/…".

void check_names(const ExperimentConfig& config) {
  std::vector<std::string> known;
  for (const auto& [name, unused] : config.eval_inputs) {
    if (name.empty() || name == kTag || name.find('/') != std::string::npos)
      fail(
          "eval_inputs: '{}' is not a valid dataset name; expected one without '/' that is not "
          "'{}'",
          name, kTag);
    known.push_back(name);
  }
  for (const auto& [name, unused] : config.eval.datasets)
    if (config.eval_inputs.count(name) == 0)
      fail("eval.datasets.{}: there is no dataset '{}' among eval_inputs{} (it has {})", name, name,
           did_you_mean(name, known), fmt::join(known, ", "));
}

// Whether a metric is a mean: not a count, and not perplexity, which follows from log_pplx.
bool is_averaged(const std::string& name) { return name != "weight" && name != "perplexity"; }

void check_members(const std::vector<std::string>& members, const std::vector<std::string>& known) {
  if (members.empty())
    fail("it names no dataset; expected at least one of {}", fmt::join(known, ", "));
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string& member = members[i];
    if (std::find(known.begin(), known.end(), member) == known.end())
      fail("there is no dataset '{}'{}; there are {}", member, did_you_mean(member, known),
           fmt::join(known, ", "));
    for (size_t j = 0; j < members.size(); ++j) {
      if (j != i && members[j] == member) fail("it names '{}' twice", member);
      if (member.starts_with(members[j] + "/"))
        fail("it names '{}' and '{}', which contains it: its labels would count twice", member,
             members[j]);
    }
  }
}

}  // namespace

Evaluation::Evaluation(const ExperimentConfig& config, const TrainHParams& train,
                       const OpenInput& open)
    : tags_(config.eval.tags) {
  check_names(config);
  for (const auto& [name, input_tpl] : config.eval_inputs) {
    const auto found = config.eval.datasets.find(name);
    const EvalHParams p = found == config.eval.datasets.end() ? EvalHParams{} : found->second;
    datasets_.emplace_back(name, p, p.num_batches.value_or(train.eval_loop_num_batches),
                           open(input_tpl, "eval_inputs." + name));
  }
  std::vector<std::string> known;
  bool all_attached = true;
  for (const EvalDataset& dataset : datasets_) {
    known.push_back(dataset.name());
    for (const std::string& source : dataset.sources())
      known.push_back(fmt::format("{}/{}", dataset.name(), source));
    all_attached = all_attached && dataset.attached();
  }
  if (all_attached) check_tags(tags_, known);  // A plan does not know the sources.
}

void Evaluation::require_labels(ProcessGroup& processes) {
  for (EvalDataset& dataset : datasets_) dataset.require_labels(processes);
}

// Datasets with the same batch shape share a program.
void Evaluation::compile(ModelSession& session, const ExperimentConfig& config,
                         const std::filesystem::path& run_directory,
                         const std::function<int(Graph)>& add_program) {
  TraceSetting setting{session.mesh(), session.rules(), {}};
  setting.scores_tokens = std::ranges::any_of(datasets_, &EvalDataset::scores_tokens);
  std::vector<Batch> batches;
  for (EvalDataset& dataset : datasets_) {
    setting.batch = global_specification(dataset.input());
    const auto known = std::ranges::find_if(
        batches, [&](const Batch& batch) { return same_shapes(batch, setting.batch); });
    if (known == batches.end()) {
      const BaseTask& task = session.task();
      const std::string loss = std::string(names::kSumPrefix) + std::string(names::kLoss);
      Graph graph = graph_of(task, "eval_graph()", loss,
                             [&] { return task.eval_graph(setting, session.eval_weights()); });
      bounds_.push_back(lookup_bounds(graph));
      programs_.push_back(add_program(std::move(graph)));
    } else {
      const auto same = static_cast<size_t>(known - batches.begin());
      bounds_.push_back(bounds_[same]);
      programs_.push_back(programs_[same]);
    }
    batches.push_back(setting.batch);
    if (dataset.attached())
      dataset.compile_predictions(session, config.eval_inputs.at(dataset.name()), run_directory);
  }
}

void Evaluation::begin(Executor& executor) {
  for (size_t i = 0; i < datasets_.size(); ++i)
    datasets_[i].begin(EvalProgram(executor, programs_[i]), bounds_[i]);
}

std::vector<std::string> Evaluation::metric_names() const {
  std::vector<std::string> names;
  for (const EvalDataset& dataset : datasets_)
    for (const std::string& metric : dataset.metric_names())
      names.push_back(fmt::format("eval/{}/{}", dataset.name(), metric));
  for (const auto& [tag, members] : tags_)
    for (const std::string& metric : tag_names(names_of_tag(members)))
      names.push_back(fmt::format("eval/{}/{}/{}", kTag, tag, metric));
  return names;
}

void Evaluation::require(std::string_view field, const std::string& metric) const {
  if (metric.empty()) return;
  const std::vector<std::string> names = metric_names();
  if (std::find(names.begin(), names.end(), metric) == names.end())
    fail("{}: evaluation has no metric '{}'{}; it has {}", field, metric,
         did_you_mean(metric, names), fmt::join(names, ", "));
}

// The metrics that all members of a tag report.
std::vector<std::string> Evaluation::names_of_tag(const std::vector<std::string>& members) const {
  std::vector<std::string> common;
  bool is_first = true;
  for (const EvalDataset& dataset : datasets_) {
    for (const std::string& member : members) {
      const size_t slash = member.find('/');
      if (member.substr(0, slash) != dataset.name()) continue;
      const std::vector<std::string>& own =
          slash == std::string::npos ? dataset.model_names() : dataset.source_names();
      std::vector<std::string> both;
      std::ranges::set_intersection(common, own, std::back_inserter(both));
      common = is_first ? own : both;
      is_first = false;
    }
  }
  return common;
}

EvalReport Evaluation::run(ProcessGroup& processes, const EvalMonitor& monitor) {
  const std::map<std::string, InputState> before = states();
  EvalReport report;
  std::map<std::string, MetricMeans> means;  // By "dataset" and "dataset/source".
  for (EvalDataset& dataset : datasets_) {
    const EvalDataset::Result result = dataset.run(processes, monitor);
    if (result.signal != 0) {
      restore(before);
      return {.signal = result.signal};
    }
    for (const auto& [name, value] : result.metrics)
      report.metrics[fmt::format("eval/{}/{}", dataset.name(), name)] = value;
    for (const auto& [name, elements] : result.histograms)
      report.histograms[fmt::format("eval/{}/{}", dataset.name(), name)] = elements;
    if (!result.remark.empty()) report.remarks.push_back(result.remark);
    means[dataset.name()] = result.scores.whole();
    for (size_t i = 0; i < dataset.sources().size(); ++i)
      means[fmt::format("{}/{}", dataset.name(), dataset.sources()[i])] =
          result.scores.by_source()[i];
  }
  for (const auto& [tag, members] : tags_) {
    std::vector<MetricMeans> of_members;
    for (const std::string& member : members) of_members.push_back(means.at(member));
    for (const auto& [name, value] : tag_values(of_members, names_of_tag(members)))
      report.metrics[fmt::format("eval/{}/{}/{}", kTag, tag, name)] = value;
  }
  return report;
}

std::map<std::string, InputState> Evaluation::states() const {
  std::map<std::string, InputState> states;
  for (const EvalDataset& dataset : datasets_)
    if (dataset.rolls()) states[dataset.name()] = dataset.state();
  return states;
}

void Evaluation::restore(const std::map<std::string, InputState>& states) {
  for (EvalDataset& dataset : datasets_) {
    if (!dataset.rolls()) continue;
    const auto found = states.find(dataset.name());
    if (found == states.end()) {
      dataset.reset();
    } else {
      dataset.restore(found->second);
    }
  }
}

void check_tags(const EvalTags& tags, const std::vector<std::string>& known) {
  for (const auto& [tag, members] : tags) {
    const ErrorContext where("eval.tags." + tag);
    if (tag.empty() || tag.find('/') != std::string::npos)
      fail("'{}' is not a valid tag name; expected one without '/'", tag);
    check_members(members, known);
  }
}

std::map<std::string, double> tag_values(const std::vector<MetricMeans>& members,
                                         const std::vector<std::string>& names) {
  MetricMeans micro;
  for (const MetricMeans& member : members) micro.add(member);
  std::map<std::string, double> values = reported_values(micro, names);
  for (const std::string& name : names) {
    if (!is_averaged(name)) continue;
    double sum = 0.0;
    int64_t count = 0;
    for (const MetricMeans& member : members) {
      const double value = reported_values(member, {name}).at(name);
      if (member.weight("loss") <= 0.0 || std::isnan(value)) continue;
      sum += value;
      ++count;
    }
    values[kMacroPrefix + name] =
        count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

std::optional<std::string> undefined_loss(const std::map<std::string, double>& metrics) {
  constexpr std::string_view kLossSuffix = "/loss";
  for (const auto& [name, value] : metrics) {
    if (!name.ends_with(kLossSuffix) || std::isfinite(value)) continue;
    const auto weight = metrics.find(name.substr(0, name.size() - kLossSuffix.size()) + "/weight");
    if (weight != metrics.end() && weight->second > 0.0)
      return fmt::format("{} is {}", name, plain_nan(value));
  }
  return std::nullopt;
}

std::vector<std::string> tag_names(const std::vector<std::string>& names) {
  std::vector<std::string> all = names;
  for (const std::string& name : names)
    if (is_averaged(name)) all.push_back(kMacroPrefix + name);
  return all;
}

}  // namespace tessera
