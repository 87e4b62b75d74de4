// SPDX-License-Identifier: Apache-2.0
// One eval dataset of a run: its input, the number of batches per evaluation, and its scores.
// evaluation.h combines datasets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/type.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"
#include "tasks/run/eval/user_metrics.h"
#include "tasks/run/session/step_checks.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/task/hparams.h"
#include "tasks/task/metric_means.h"

namespace tessera {

// An input, and the rows of the global batch that this process reads from it.
struct OpenedInput {
  std::unique_ptr<BaseInput> input;
  std::vector<RowRange> rows;
  bool attached = true;  // false in a plan, which reads no data.
};

// The names of reported values: the model's metrics, weight (of scored labels), perplexity if there
// is log_pplx, and bits_per_byte if the number of bytes is known.
std::vector<std::string> reported_names(const std::vector<std::string>& model_metrics,
                                        bool knows_bytes);
// Their values; NaN where nothing was scored.
std::map<std::string, double> reported_values(const MetricMeans& means,
                                              const std::vector<std::string>& names);

// Sums and weights of one dataset in f64, whole and by source. Rows are added one by one, so that
// the result depends neither on the batch size nor on the number of hosts.
class DatasetScores {
 public:
  explicit DatasetScores(size_t num_sources) : by_source_(num_sources) {}

  // Skips rows whose sample weight is 0. Metrics without values per row, which layers add, are
  // taken from the whole batch and not counted for sources.
  void add(const ScoredBatch& batch);

  const MetricMeans& whole() const { return whole_; }
  const std::vector<MetricMeans>& by_source() const { return by_source_; }

 private:
  void add_row(const ScoredBatch& batch, size_t row, MetricMeans* means) const;

  MetricMeans whole_;
  std::vector<MetricMeans> by_source_;
};

// Callbacks of an evaluation between batches.
struct EvalMonitor {
  const StopSignal* stop = nullptr;  // Ends the evaluation early; null: nothing does.
  // Called with "evaluating validation: 120 batches" if that takes longer than a second.
  std::function<void(const std::string& text)> progress;
  // The file that gets the examples of a dataset with write_examples; null: none.
  std::function<std::filesystem::path(const std::string& dataset)> examples_file;
};

class EvalDataset {
 public:
  // `num_batches` is the resolved value of p.num_batches.
  EvalDataset(std::string name, const EvalHParams& p, int64_t num_batches, OpenedInput opened);

  const std::string& name() const { return name_; }
  const BaseInput& input() const { return *opened_.input; }
  bool rolls() const { return !p_.reset_for_eval; }
  // Whether its program scores each token.
  bool scores_tokens() const { return p_.write_examples || !p_.score_metrics.empty(); }
  // The sources of a mixture; else empty.
  const std::vector<std::string>& sources() const { return sources_; }

  // Adds the programs of predict metrics, if there are any.
  void compile_predictions(ModelSession& session, const Template<BaseInput>& input_tpl,
                           const std::filesystem::path& run_directory);
  // Call it after programs are compiled and the executor has allocated. Batches are checked by
  // `bounds`.
  void begin(const EvalProgram& program, LookupBounds bounds);
  // Metrics of the model, of the whole dataset and of each source, sorted; and all reported
  // metrics:
  const std::vector<std::string>& model_names() const { return model_names_; }
  const std::vector<std::string>& source_names() const { return source_names_; }
  // "accuracy", "<source>/accuracy", "<score or predict metric>/…".
  std::vector<std::string> metric_names() const;

  // Error if there is nothing to score. Reads until the first label that counts, and starts over.
  // A collective call.
  void require_labels(ProcessGroup& processes);

  struct Result {
    DatasetScores scores{0};
    std::map<std::string, double> metrics;  // By metric_names().
    std::map<std::string, std::vector<double>> histograms;
    std::string remark;  // "" or a remark, which is returned only once.
    int signal = 0;      // The signal at which it ended early, without results; 0: none.
  };
  // A collective call with the same result everywhere. Error if there is nothing to score.
  Result run(ProcessGroup& processes, const EvalMonitor& monitor);

  bool attached() const { return opened_.attached; }
  void reset() { opened_.input->reset(); }
  InputState state() const { return opened_.input->state(); }
  void restore(const InputState& state);

 private:
  [[noreturn]] void fail_without_labels() const;
  void check_reach() const;
  void check_metric_names() const;
  using TakeExample = std::function<void(const ScoredExample&)>;
  // The agreed signal at which it ended early; 0: none. Examples go to `take` if it is set.
  int score(ProcessGroup& processes, const EvalMonitor& monitor, Result* result,
            const TakeExample& take);
  void add_examples(const Batch& local, const ScoredBatch& scored, int64_t first,
                    const TakeExample& take, ProcessGroup& processes) const;

  std::string name_;
  EvalHParams p_;
  int64_t num_batches_;
  OpenedInput opened_;
  std::vector<std::string> sources_;
  std::optional<EvalProgram> program_;
  LookupBounds bounds_;
  std::unique_ptr<Predictions> predictions_;  // Null without predict metrics.
  std::vector<std::string> model_names_, source_names_;
  bool has_remarked_ = false;
};

}  // namespace tessera
