// SPDX-License-Identifier: Apache-2.0
// The knobs of the training loop, `task.train.…`: number of steps, intervals of saving, evaluation
// and logging, and initial weights from another run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

// Remaps a parameter to a weight of another run. The first rule whose `pattern` matches the whole
// path applies; `source` is the weight's name there, with $0 for the path and $1, $2, … for groups.
struct InitRule {
  static constexpr std::string_view kName = "InitRule";
  std::string pattern = ".*";
  std::string source = "$0";
  FIELDS(pattern, source)
};

struct InitFrom {
  static constexpr std::string_view kName = "InitFrom";
  std::string directory;  // The other run's directory; empty: random initialisation.
  int64_t step = -1;      // -1: the newest checkpoint.
  std::vector<InitRule> load_rules = {InitRule{}};
  std::vector<std::string> ignore_rules;  // Parameters that keep their random initialisation.
  bool safe_load = true;                  // Error for a rule that matches nothing.
  FIELDS(directory, step, load_rules, ignore_rules, safe_load)
};

// Early stopping: an eval metric has not improved for a while, or has reached a target.
struct EarlyStopping {
  static constexpr std::string_view kName = "EarlyStopping";
  std::string metric;          // "eval/validation/log_pplx"; empty: off.
  int64_t patience_evals = 0;  // Evaluations without improvement; 0: no limit.
  double min_improvement = 0.0;
  double target = 0.0;  // Stop once metric <= target, if `stop_at_target`.
  bool stop_at_target = false;
  FIELDS(metric, patience_evals, min_improvement, target, stop_at_target)
};

// Texts sampled from the model during training and at its end.
struct SampleHParams {
  static constexpr std::string_view kName = "Sample";
  int64_t length = 0;          // Tokens; 0: no samples.
  int64_t interval_steps = 0;  // 0: only at the end.
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: no limit.
  double top_p = 1.0;
  std::vector<std::string> prompts;  // Empty: one text without a prompt.
  int64_t seed = 0;
  FIELDS(length, interval_steps, temperature, top_k, top_p, prompts, seed)
};

struct TrainHParams {
  static constexpr std::string_view kName = "Train";
  int64_t num_train_steps = 10000;
  int64_t seed = 1234;           // For initial weights and dropout.
  int64_t num_microbatches = 1;  // Gradient accumulation within a step.
  std::string remat_policy = "save_everything";

  int64_t save_interval_steps = 1000;
  int64_t save_max_to_keep = 3;       // The newest N; 0: all.
  int64_t save_keep_every_steps = 0;  // Checkpoints at multiples of it are never removed.
  std::string save_keep_best;         // Keep the checkpoint with the lowest value of this metric.

  int64_t eval_interval_steps = 1000;  // 0: no evaluation in training.
  int64_t eval_loop_num_batches = -1;  // -1: the whole dataset.
  bool eval_on_ema = true;             // If the learner keeps a moving average.

  int64_t metrics_interval_steps = 1;   // Lines of metrics.jsonl.
  int64_t summary_interval_steps = 20;  // TensorBoard.
  int64_t prefetch_batches = 4;
  int64_t collective_timeout_seconds = 600;  // How long devices and processes wait for each other.
  int64_t stop_deadline_seconds = 120;       // For saving after a stop signal.
  bool parameter_norms = false;              // Log norms of each weight and gradient.

  InitFrom init_from;
  EarlyStopping early_stopping;
  SampleHParams sample;
  FIELDS(num_train_steps, seed, num_microbatches, remat_policy, save_interval_steps,
         save_max_to_keep, save_keep_every_steps, save_keep_best, eval_interval_steps,
         eval_loop_num_batches, eval_on_ema, metrics_interval_steps, summary_interval_steps,
         prefetch_batches, collective_timeout_seconds, stop_deadline_seconds, parameter_norms,
         init_from, early_stopping, sample)
};

// Throws an Error for a number out of range.
void check(const TrainHParams& p);

}  // namespace tessera
