// SPDX-License-Identifier: Apache-2.0
// The knobs of the training loop, `task.train.…`: how long, how often, from where. What a step
// computes is the task's and the learner's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

// Which weights to take from another run, by the first rule whose `pattern` matches a parameter's
// whole path; `source` names the weight there and may hold $0 (the path) and $1, $2, … (its
// groups).
struct InitRule {
  static constexpr std::string_view kName = "InitRule";
  std::string pattern = ".*";
  std::string source = "$0";
  FIELDS(pattern, source)
};

struct InitFrom {
  static constexpr std::string_view kName = "InitFrom";
  std::string directory;  // Another run's directory; empty: initialise afresh.
  int64_t step = -1;      // -1: its newest checkpoint.
  std::vector<InitRule> load_rules = {InitRule{}};
  std::vector<std::string> ignore_rules;  // Parameters that stay freshly initialised; they win.
  bool safe_load = true;                  // Refuse a rule that matches nothing.
  FIELDS(directory, step, load_rules, ignore_rules, safe_load)
};

// Stops the run when an eval metric has not improved for a while or is good enough.
struct EarlyStopping {
  static constexpr std::string_view kName = "EarlyStopping";
  std::string metric;          // "eval/validation/log_pplx"; empty: never stops.
  int64_t patience_evals = 0;  // Evaluations without improvement; 0: no limit.
  double min_improvement = 0.0;
  double target = 0.0;  // Stop once metric <= target, if `stop_at_target`.
  bool stop_at_target = false;
  FIELDS(metric, patience_evals, min_improvement, target, stop_at_target)
};

// Texts that the model writes while it trains and at the end, so that one sees what it has learnt.
struct SampleHParams {
  static constexpr std::string_view kName = "Sample";
  int64_t length = 0;          // Tokens; 0: no samples.
  int64_t interval_steps = 0;  // 0: at the end alone.
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: all.
  double top_p = 1.0;
  std::vector<std::string> prompts;  // Empty: what an unprompted text begins with.
  int64_t seed = 0;
  FIELDS(length, interval_steps, temperature, top_k, top_p, prompts, seed)
};

struct TrainHParams {
  static constexpr std::string_view kName = "Train";
  int64_t num_train_steps = 10000;
  int64_t seed = 1234;           // Of initial weights and dropout.
  int64_t num_microbatches = 1;  // Gradient accumulation within a step.
  std::string remat_policy = "save_everything";

  int64_t save_interval_steps = 1000;
  int64_t save_max_to_keep = 3;       // The newest N; 0: all.
  int64_t save_keep_every_steps = 0;  // These multiples are kept for good.
  std::string save_keep_best;         // An eval metric, lowest is best; that one is kept too.

  int64_t eval_interval_steps = 1000;  // 0: no evaluation in training.
  int64_t eval_loop_num_batches = -1;  // -1: the whole set.
  bool eval_on_ema = true;             // If the learner averages weights.

  int64_t metrics_interval_steps = 1;   // Lines of metrics.jsonl.
  int64_t summary_interval_steps = 20;  // TensorBoard.
  int64_t prefetch_batches = 4;
  int64_t collective_timeout_seconds = 600;  // How long devices and processes wait for each other.
  int64_t stop_deadline_seconds = 120;       // To save in, once told to stop.
  bool parameter_norms = false;              // Per-parameter norms of weights and gradients.

  InitFrom init_from;
  EarlyStopping early_stopping;
  SampleHParams sample;
  FIELDS(num_train_steps, seed, num_microbatches, remat_policy, save_interval_steps,
         save_max_to_keep, save_keep_every_steps, save_keep_best, eval_interval_steps,
         eval_loop_num_batches, eval_on_ema, metrics_interval_steps, summary_interval_steps,
         prefetch_batches, collective_timeout_seconds, stop_deadline_seconds, parameter_norms,
         init_from, early_stopping, sample)
};

// Error for a number that can be none.
void check(const TrainHParams& p);

}  // namespace tessera
