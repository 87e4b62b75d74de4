// SPDX-License-Identifier: Apache-2.0
// One eval dataset of a run: its input, how much of it each evaluation takes, and its scores. Which
// datasets there are and how they are averaged: evaluation.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/shard.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"
#include "tasks/eval/dataset_scores.h"
#include "tasks/eval/eval_hparams.h"
#include "tasks/eval/eval_program.h"
#include "tasks/eval/predictions.h"

namespace tessera {

// An input, and the rows of the global batch that this process reads from it.
struct OpenedInput {
  std::unique_ptr<BaseInput> input;
  std::vector<RowRange> rows;
  bool attached = true;  // false in a plan, which reads nothing.
};

class EvalDataset {
 public:
  // `num_batches` is what p.num_batches comes to.
  EvalDataset(std::string name, const EvalHParams& p, int64_t num_batches, OpenedInput opened);

  const std::string& name() const { return name_; }
  const BaseInput& input() const { return *opened_.input; }
  bool rolls() const { return !p_.reset_for_eval; }
  // Of a mixture; else empty.
  const std::vector<std::string>& sources() const { return sources_; }

  // Adds the programs that predict metrics need, if there are any.
  void compile_predictions(ModelSession& session, const Template<BaseInput>& input_tpl,
                           const std::filesystem::path& run_directory);
  // Once programs are compiled and the executor is allocated.
  void begin(const EvalProgram& program);
  // Of the model, and what else is reported.
  const std::vector<std::string>& model_names() const { return model_names_; }
  // "accuracy", "<source>/accuracy", "<score or predict metric>/…".
  std::vector<std::string> metric_names() const;

  struct Result {
    DatasetScores scores{0};
    std::map<std::string, double> metrics;  // By metric_names().
    std::string remark;                     // Or empty. Each is made once.
  };
  // Error if there is nothing to score. All processes call it together and get the same.
  Result run(ProcessGroup& processes);

  bool attached() const { return opened_.attached; }
  void reset() { opened_.input->reset(); }
  InputState state() const { return opened_.input->state(); }
  void restore(const InputState& state);

 private:
  using ScoreMetrics = std::map<std::string, std::unique_ptr<ScoreMetric>>;
  void check_reach() const;
  void check_metric_names() const;
  ScoreMetrics make_score_metrics() const;
  void add_examples(const Batch& local, const ScoredBatch& scored, int64_t first,
                    const ScoreMetrics& metrics, ProcessGroup& processes) const;
  void report(const ScoreMetrics& metrics, Result* result) const;

  std::string name_;
  EvalHParams p_;
  int64_t num_batches_;
  OpenedInput opened_;
  std::vector<std::string> sources_;
  std::optional<EvalProgram> program_;
  std::unique_ptr<Predictions> predictions_;  // Null without predict metrics.
  std::vector<std::string> model_names_;
  bool has_remarked_ = false;
};

}  // namespace tessera
