// SPDX-License-Identifier: Apache-2.0
// The metrics that users write (tasks/task/eval_metrics.h), applied to an eval dataset: score
// metrics to the examples of its batches, predict metrics to text generated for its examples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/type.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"
#include "tasks/run/decode/decode_examples.h"
#include "tasks/run/decode/decode_program.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/task/hparams.h"

namespace tessera {

// Error unless they are different names without '/'.
void check_metric_names(const std::string& function, const std::vector<std::string>& names);
// Error unless there is a value for each name and no other, and none is NaN.
void check_values(const std::string& function, const std::vector<std::string>& names,
                  const std::map<std::string, double>& values);

// The metrics of one field of EvalHParams, which errors name: one object of each for one
// evaluation.
template <typename Metric>
class UserMetrics {
 public:
  UserMetrics(std::string field, const std::map<std::string, Template<Metric>>& templates)
      : field_(std::move(field)) {
    for (const auto& [name, metric_tpl] : templates) {
      const ErrorContext where(context(name));
      if (!metric_tpl.has()) fail("no metric is given; expected the name of a metric class");
      metrics_[name] = metric_tpl.instantiate();
    }
  }

  bool empty() const { return metrics_.empty(); }
  // "<metric>/<value>", in the order of the metrics.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [metric, made] : metrics_)
      for (const std::string& name : names_of(metric)) all.push_back(metric + "/" + name);
    return all;
  }
  template <typename Example>
  void add(const Example& example) {
    for (const auto& [name, metric] : metrics_) {
      const ErrorContext where(context(name));
      calling(*metric, "add()", [&] { metric->add(example); });
    }
  }
  // By names().
  std::map<std::string, double> values() const {
    std::map<std::string, double> all;
    for (const auto& [metric, made] : metrics_) {
      const ErrorContext where(context(metric));
      const auto values = calling(*made, "values()", [&] { return made->values(); });
      check_values(function_name(typeid(*made), "values()"), names_of(metric), values);
      for (const auto& [name, value] : values) all[metric + "/" + name] = value;
    }
    return all;
  }

 private:
  std::vector<std::string> names_of(const std::string& metric) const {
    const Metric& made = *metrics_.at(metric);
    const ErrorContext where(context(metric));
    auto names = calling(made, "names()", [&] { return made.names(); });
    check_metric_names(function_name(typeid(made), "names()"), names);
    return names;
  }
  std::string context(const std::string& metric) const { return field_ + "." + metric; }

  std::string field_;
  std::map<std::string, std::unique_ptr<Metric>> metrics_;
};

UserMetrics<ScoreMetric> make_score_metrics(const EvalHParams& p);
UserMetrics<PredictMetric> make_predict_metrics(const EvalHParams& p);

// All-gathers the rows of a global batch from the processes that read them, for metrics that look
// at examples on the host. `local` holds this process's rows: those of `ranges`, one after the
// other (no ranges: all rows). The result is the same in every process. The first axis of each
// array is "batch".
Batch gather_rows(const Batch& local, const std::vector<RowRange>& ranges, int64_t global_rows,
                  ProcessGroup& processes);

// One row of a batch: its arrays without the axis "batch".
Batch row_of_batch(const Batch& batch, int64_t row);

// Generates text for the examples of an eval dataset, in shards, and applies the predict metrics in
// process 0.
class Predictions {
 public:
  // Adds programs to the session, with a cache of their own, before it allocates; then call
  // `begin`. Reads the whole dataset, even if only a part of it is scored otherwise.
  Predictions(ModelSession& session, const std::string& dataset,
              const Template<BaseInput>& input_tpl, const EvalHParams& p,
              const std::filesystem::path& run_directory);
  void begin();

  // Adds "<predict metric>/<value>" to the metrics. A collective call with the same result
  // everywhere. Returns the signal at which it ended early, without metrics, or 0.
  int run(ProcessGroup& processes, const StopSignal* stop, std::map<std::string, double>* metrics);

 private:
  EvalHParams p_;
  DecodeHParams decode_;
  std::unique_ptr<BaseInput> input_;
  std::optional<PromptText> text_;
  std::vector<DecodedExample> examples_;  // Those that this process decodes.
  std::optional<Decoding> decoding_;
};

}  // namespace tessera
