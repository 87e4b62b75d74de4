// SPDX-License-Identifier: Apache-2.0
// All eval datasets of a run and their averages, for evaluation during training and --mode=eval. It
// prints nothing and writes no files.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/run/eval/eval_dataset.h"
#include "tasks/run/session/model_session.h"
#include "tasks/task/base_task.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/metric_means.h"

namespace tessera {

// Named averages over datasets and sources, as Levanter's tags: over all labels (micro), and over
// members with equal weight (macro). Members by tag: "dataset" or "dataset/source".
using EvalTags = std::map<std::string, std::vector<std::string>>;

// Error for a tag with an unknown member (with the nearest name), a member named twice, or none.
// `known`: all datasets, and the sources of each ("dataset/source").
void check_tags(const EvalTags& tags, const std::vector<std::string>& known);

inline constexpr const char* kMacroPrefix = "macro_";

// "<metric>" and "macro_<metric>" of one tag, for the names of reported_values. Members in which
// nothing was scored are left out of the macro average.
std::map<std::string, double> tag_values(const std::vector<MetricMeans>& members,
                                         const std::vector<std::string>& names);
std::vector<std::string> tag_names(const std::vector<std::string>& names);

struct EvalReport {
  // "eval/<dataset>/<metric>", "eval/<dataset>/<source>/<metric>", "eval/tag/<tag>/<metric>".
  std::map<std::string, double> metrics;
  std::map<std::string, std::vector<double>> histograms;  // "eval/<dataset>/<metric>".
  std::vector<std::string> remarks;
  int signal = 0;  // The signal at which the evaluation ended early, without metrics; 0: none.
};

// The first dataset whose loss in an EvalReport is not finite although labels were scored, as
// "eval/validation/loss is nan"; nullopt if all are finite. User metrics and datasets without
// scored labels may be NaN.
std::optional<std::string> undefined_loss(const std::map<std::string, double>& metrics);

class Evaluation {
 public:
  // Opens the input of a template; `where` names its place in the configuration for errors.
  using OpenInput =
      std::function<OpenedInput(const Template<BaseInput>& input_tpl, const std::string& where)>;
  Evaluation(const ExperimentConfig& config, const TrainHParams& train, const OpenInput& open);

  const std::vector<EvalDataset>& datasets() const { return datasets_; }

  // Error for a dataset in which there is nothing to score. A collective call.
  void require_labels(ProcessGroup& processes);

  // Traces a program for each batch shape, and programs that generate text if a metric needs it.
  // `begin` follows when the session's executor has allocated.
  void compile(ModelSession& session, const ExperimentConfig& config,
               const std::filesystem::path& run_directory,
               const std::function<int(Graph)>& add_program);
  void begin(Executor& executor);

  // The keys of what `run` returns, in order.
  std::vector<std::string> metric_names() const;
  // Error unless it is one of these, or "". `field` names it.
  void require(std::string_view field, const std::string& metric) const;
  // Scores every dataset. A collective call with the same result everywhere. An evaluation that
  // ends early leaves datasets that continue between evaluations where they were.
  EvalReport run(ProcessGroup& processes, const EvalMonitor& monitor = {});

  // Input states of the datasets that continue between evaluations, by name.
  std::map<std::string, InputState> states() const;
  // Unknown or non-continuing datasets in `states` are ignored; datasets without a state start at
  // the beginning.
  void restore(const std::map<std::string, InputState>& states);

 private:
  std::vector<std::string> names_of_tag(const std::vector<std::string>& members) const;

  EvalTags tags_;
  std::vector<EvalDataset> datasets_;
  std::vector<int> programs_;         // One per dataset.
  std::vector<LookupBounds> bounds_;  // One per dataset.
};

}  // namespace tessera
