// SPDX-License-Identifier: Apache-2.0
// The knobs of decoding (`task.decode.…`), of the training loop (`task.train.…`) and of evaluation
// (`eval.…`).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile/numerics.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/base_tracker.h"
#include "tasks/task/eval_metrics.h"
#include "tasks/task/pipeline_schedules.h"

namespace tessera {

enum class DecodeStrategy {
  kGreedy,  // The most probable token.
  kSample,  // A token drawn from the distribution.
  kBeam,    // Beam search: the continuations with the highest score.
};

// What to do with a prompt that does not fit into the cache.
enum class LongPrompts {
  kRefuse,
  kTruncate,  // Drop its beginning, so that max_decode_steps tokens fit after the rest.
};

// How tokens are chosen, when a continuation ends, how many rows are decoded at once.
struct DecodeHParams {
  static constexpr std::string_view kName = "Decode";
  DecodeStrategy strategy = DecodeStrategy::kSample;
  // Sampling: divide logits by the temperature, keep the top_k most probable ids, then the smallest
  // set of those whose probabilities sum to top_p.
  double temperature = 0.8;
  int64_t top_k = 0;
  double top_p = 1.0;
  int64_t seed = 1234;
  // Beam search: a continuation of n tokens scores log-probability / ((5 + n) / 6)^length_penalty
  // (Wu et al., arXiv 1609.08144, eq. 14, as in Pax).
  int64_t beam_size = 4;
  double length_penalty = 0.8;

  int64_t num_samples = 1;
  int64_t max_decode_steps = 128;
  int64_t min_decode_steps = 0;
  bool stop_at_end = true;                // At the tokenizer's end-of-document token, if any.
  std::vector<std::string> stop_tokens;   // More of them: names ("<|im_end|>") or ids ("50256").
  std::vector<std::string> stop_strings;  // The text ends before the first of these.

  int64_t batch = 8;
  int64_t cache_length = 0;
  // The attention window. A row whose cache holds this many tokens drops the older half and
  // continues, so that positions stay within those seen in training. 0: the training input's
  // seq_len (no limit for beam search, whose rows cannot drop tokens); -1: no limit.
  int64_t window = 0;
  int64_t prefill_chunk = 64;
  LongPrompts long_prompts = LongPrompts::kRefuse;

  // For datasets: the first prompt_length tokens of a document are the prompt, the rest is the
  // reference. 0: the prompt ends before the first token with a loss weight.
  int64_t prompt_length = 0;
  int64_t num_examples = -1;
  FIELDS(strategy, About(temperature, "divides the logits of samples; 0: greedy", kNotNegative),
         About(top_k, "sample among the most probable ids; 0: all", {.min = 0, .max = 1 << 24}),
         About(top_p, "sample among ids of this total probability", {.above = 0, .max = 1}), seed,
         About(beam_size, kSize), About(length_penalty, kNotNegative),
         About(num_samples, "per prompt; of a beam search, the best ones", kSize),
         About(max_decode_steps, kSize),
         About(min_decode_steps, "no continuation ends before", {.min = 0, .max = 1 << 24}),
         stop_at_end, stop_tokens, stop_strings, About(batch, "rows decoded at once", kSize),
         About(cache_length, "tokens of a row; 0: the longest prompt and continuation",
               {.min = 0, .max = 1 << 24}),
         About(window, "of attention; 0: the training input's seq_len, -1: no limit",
               {.min = -1, .max = 1 << 24}),
         About(prefill_chunk, "prompt tokens per prefill call", kSize), long_prompts,
         About(prompt_length, {.min = 0, .max = 1 << 24}),
         About(num_examples, "per dataset; -1: all", {.min = 1, .max = 1 << 24, .also = -1}))
};

// Throws an Error for values that do not fit together, with their path under `where`.
void check(const DecodeHParams& p, std::string_view where = "task.decode");

// Consecutive rows of the batch that one prompt uses.
int64_t rows_per_prompt(const DecodeHParams& p);

// Remaps a parameter to a weight of another run. The first rule whose `pattern` matches the whole
// path applies; `source` is the weight's name there, with $0 for the path and $1, $2, … for groups.
struct InitRule {
  static constexpr std::string_view kName = "InitRule";
  std::string pattern = ".*";
  std::string source = "$0";
  FIELDS(pattern, source)
};

// Initial weights from another run.
struct InitFrom {
  static constexpr std::string_view kName = "InitFrom";
  std::string directory;  // The other run's directory; empty: random initialisation.
  int64_t step = -1;
  std::vector<InitRule> load_rules = {InitRule{}};
  std::vector<std::string> ignore_rules;  // Parameters that keep their random initialisation.
  bool safe_load = true;                  // Error for a rule that matches nothing.
  FIELDS(directory, About(step, "-1: the newest checkpoint", {.min = 0, .also = -1}), load_rules,
         ignore_rules, safe_load)
};

// Early stopping: an eval metric has not improved for a while, or has reached a target.
struct EarlyStopping {
  static constexpr std::string_view kName = "EarlyStopping";
  std::string metric;  // "eval/validation/log_pplx"; empty: off.
  int64_t patience_evals = 0;
  double min_improvement = 0.0;
  double target = 0.0;  // Stop once metric <= target, if `stop_at_target`.
  bool stop_at_target = false;
  FIELDS(metric,
         About(patience_evals, "evaluations without improvement; 0: no limit", kNotNegative),
         min_improvement, target, stop_at_target)
};

// Texts sampled from the model during training and at its end.
struct SampleHParams {
  static constexpr std::string_view kName = "Sample";
  int64_t length = 0;
  int64_t interval_steps = 0;
  double temperature = 0.8;
  int64_t top_k = 0;
  double top_p = 1.0;
  std::vector<std::string> prompts;  // Empty: one text without a prompt.
  int64_t seed = 0;
  FIELDS(About(length, "tokens; 0: no samples", {.min = 0, .max = 1 << 24}),
         About(interval_steps, "0: only at the end", kNotNegative),
         About(temperature, kNotNegative), About(top_k, "0: no limit", kNotNegative),
         About(top_p, {.above = 0, .max = 1}), prompts, seed)
};

// The size of the batches from a step on. What is unset is as in the input.
struct TrainPhase {
  static constexpr std::string_view kName = "TrainPhase";
  int64_t start_step = 0;
  std::optional<int64_t> batch_size;  // Rows of the global batch.
  std::optional<int64_t> seq_len;     // Tokens of a row: a divisor of the input's.
  FIELDS(About(start_step, {.min = 0, .max = 1e10}), About(batch_size, kSize),
         About(seq_len, kSize))
};

// The number of steps, and the intervals of saving, evaluation and logging.
struct TrainHParams {
  static constexpr std::string_view kName = "Train";
  int64_t num_train_steps = 10000;
  int64_t seed = 1234;
  std::vector<TrainPhase> phases;  // Empty: all batches are as in the input.
  int64_t num_microbatches = 1;
  // How they go through the stages of the mesh, if layers are split over those; unset: 1F1B.
  Template<PipelineSchedule> pipeline_schedule;
  // Number of layers of each piece, in the order of the model; empty: equally many. A stage holds
  // one piece, or one for each chunk of the schedule (core/schedules/table.h).
  std::vector<int64_t> layers_per_piece;
  std::string remat_policy = "save_everything";

  int64_t save_interval_steps = 1000;
  int64_t save_max_to_keep = 3;
  int64_t save_keep_every_steps = 0;
  std::string save_keep_best;

  int64_t eval_interval_steps = 1000;
  int64_t eval_loop_num_batches = -1;
  bool eval_on_ema = true;  // If the learner keeps a moving average.

  int64_t metrics_interval_steps = 1;
  int64_t summary_interval_steps = 20;
  int64_t prefetch_batches = 4;
  int64_t collective_timeout_seconds = 600;
  int64_t stop_deadline_seconds = 120;
  int64_t histogram_interval_steps = 0;
  bool parameter_norms = false;
  bool activations = false;
  bool deterministic = true;
  Numerics numerics = Numerics::kStandard;

  InitFrom init_from;
  EarlyStopping early_stopping;
  SampleHParams sample;
  std::map<std::string, Template<BaseTracker>> trackers;  // By a name that the user chooses.
  std::vector<std::string> tags;
  std::string notify;
  int64_t tracker_wait_seconds = 10;
  FIELDS(About(num_train_steps, kNotNegative), About(seed, "of initial weights and dropout"),
         phases,
         About(num_microbatches, "gradient accumulation within a step", {.min = 1, .max = 16384}),
         pipeline_schedule, About(layers_per_piece, kSize),
         About(remat_policy, "what the backward pass finds saved: a policy of Pax, or names"),
         About(save_interval_steps, kNotNegative),
         About(save_max_to_keep, "the newest N checkpoints; 0: all", kNotNegative),
         About(save_keep_every_steps, "checkpoints at multiples of it are never removed",
               kNotNegative),
         About(save_keep_best, "keep the checkpoint with the lowest value of this metric"),
         About(eval_interval_steps, "0: no evaluation in training", kNotNegative),
         About(eval_loop_num_batches, "-1: the whole dataset", {.min = 1, .also = -1}), eval_on_ema,
         About(metrics_interval_steps, "lines of metrics.jsonl", kNotNegative),
         About(summary_interval_steps, "of TensorBoard", kNotNegative),
         About(prefetch_batches, {.min = 1, .max = 1024}),
         About(collective_timeout_seconds, "how long devices and processes wait for each other",
               {.min = 1}),
         About(stop_deadline_seconds, "for saving after a stop signal", {.min = 1}),
         About(histogram_interval_steps, "of weights and gradients; 0: none", kNotNegative),
         About(parameter_norms, "log norms of each weight and gradient"),
         About(activations, "log mean squares of what layers add to the residual, and of logits"),
         About(deterministic, "false permits GPU kernels whose bits differ from run to run"),
         About(numerics,
               "f64: in double precision, slow; mesh_invariant: the same bits on every mesh"),
         init_from, early_stopping, sample, trackers,
         About(tags, "of the run in trackers: a word, or name=value"),
         About(notify, "shell command at start, failure and end, with a JSON object as input"),
         About(tracker_wait_seconds, "for trackers and notify, at the end of a run", {.min = 0}))
};

// How one dataset of an experiment's `eval_inputs` is scored. When: task.train.eval_….
struct EvalHParams {
  static constexpr std::string_view kName = "Eval";
  // Unset: task.train.eval_loop_num_batches.
  std::optional<int64_t> num_batches;
  // Whether each evaluation starts at the beginning. If false, the input must repeat; each
  // evaluation continues where the last one stopped, and checkpoints store the position.
  bool reset_for_eval = true;
  std::map<std::string, Template<ScoreMetric>> score_metrics;  // By name in eval lines.
  // Metrics of generated text, and how to generate it (unset: as task.decode). They use all
  // examples of the dataset, or the first decode.num_examples.
  std::map<std::string, Template<PredictMetric>> predict_metrics;
  std::optional<DecodeHParams> decode;
  bool write_examples = false;
  FIELDS(About(num_batches, "per evaluation; -1: all", {.min = 1, .also = -1}), reset_for_eval,
         score_metrics, predict_metrics, decode,
         About(write_examples, "--mode=eval writes the log-probability of each token"))
};

struct EvaluationHParams {
  static constexpr std::string_view kName = "Evaluation";
  std::map<std::string, EvalHParams> datasets;  // By dataset name; defaults for those not listed.
  // Averages with a name: the members of each tag, "dataset" or "dataset/source".
  std::map<std::string, std::vector<std::string>> tags;
  std::string harness;  // A file of requests (docs/evaluation.md): the dataset `harness`.
  // For --checkpoint=follow.
  double follow_poll_seconds = 2.0;
  double follow_patience_seconds = 1800.0;
  FIELDS(datasets, tags, harness,
         About(follow_poll_seconds, "between looks for a new checkpoint", kPositive),
         About(follow_patience_seconds, "without any output, until the job counts as stopped",
               kPositive))
};

}  // namespace tessera
