// SPDX-License-Identifier: Apache-2.0
// All eval datasets of a run and how they are averaged: what an evaluation gives, in training and
// alone. It says nothing on the console and writes no file.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/base_task.h"
#include "tasks/config/experiment.h"
#include "tasks/eval/eval_dataset.h"
#include "tasks/metric_means.h"
#include "tasks/session/model_session.h"

namespace tessera {

// Averages over several datasets and sources under a name of their own, as Levanter's tags: over
// all labels alike (micro), and over members alike, however large (macro).
// Members by tag: "dataset" or "dataset/source".
using EvalTags = std::map<std::string, std::vector<std::string>>;

// Error for a tag that names what there is not (with the nearest name), names something twice, or
// nothing. `known`: all datasets, and the sources of each ("dataset/source").
void check_tags(const EvalTags& tags, const std::vector<std::string>& known);

inline constexpr const char* kMacroPrefix = "macro_";

// "<metric>" and "macro_<metric>" of one tag, for the names of reported_values. A member in which
// nothing was scored is left out of the macro average.
std::map<std::string, double> tag_values(const std::vector<MetricMeans>& members,
                                         const std::vector<std::string>& names);
std::vector<std::string> tag_names(const std::vector<std::string>& names);

struct EvalReport {
  // "eval/<dataset>/<metric>", "eval/<dataset>/<source>/<metric>", "eval/tag/<tag>/<metric>".
  std::map<std::string, double> metrics;
  std::vector<std::string> remarks;
};

class Evaluation {
 public:
  // Opens the input of a template; the text says whose it is.
  using OpenInput =
      std::function<OpenedInput(const Template<BaseInput>& input_tpl, const std::string& where)>;
  Evaluation(const ExperimentConfig& config, const TrainHParams& train, const OpenInput& open);

  const std::vector<EvalDataset>& datasets() const { return datasets_; }

  // Traces a program for each shape of batch, and what generates text if a metric looks at some.
  // Then, when the session's executor is allocated, `begin`.
  void compile(ModelSession& session, const ExperimentConfig& config,
               const std::filesystem::path& run_directory,
               const std::function<int(const Graph&)>& add_program);
  void begin(Executor& executor);

  // What `run` gives, in order.
  std::vector<std::string> metric_names() const;
  // Scores every dataset. All processes call it together and get the same.
  EvalReport run(ProcessGroup& processes);

  // Where those datasets are that roll on, by name.
  std::map<std::string, InputState> states() const;
  // Of datasets that are not there or do not roll, what is given is passed over; those for which
  // nothing is given begin anew.
  void restore(const std::map<std::string, InputState>& states);

 private:
  void open_datasets(const ExperimentConfig& config, const TrainHParams& train,
                     const OpenInput& open);
  std::vector<std::string> names_of_tag(const std::vector<std::string>& members) const;

  EvalTags tags_;
  std::vector<EvalDataset> datasets_;
  std::vector<int> programs_;  // Of each dataset.
};

}  // namespace tessera
