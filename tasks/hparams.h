// SPDX-License-Identifier: Apache-2.0
// The knobs of decoding (`task.decode.…`), of the training loop (`task.train.…`) and of evaluation
// (`eval.…`).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/eval_metrics.h"
#include "tasks/pipeline/pipeline_schedules.h"

namespace tessera {

enum class DecodeStrategy {
  kGreedy,  // The most probable token.
  kSample,  // A token drawn from the distribution.
  kBeam,    // Beam search: the continuations with the highest score.
};

constexpr std::array<EnumName<DecodeStrategy>, 3> enum_names(DecodeStrategy) {
  return {{{DecodeStrategy::kGreedy, "greedy"},
           {DecodeStrategy::kSample, "sample"},
           {DecodeStrategy::kBeam, "beam"}}};
}

// What to do with a prompt that does not fit into the cache.
enum class LongPrompts {
  kRefuse,
  kTruncate,  // Drop its beginning, so that max_decode_steps tokens fit after the rest.
};

constexpr std::array<EnumName<LongPrompts>, 2> enum_names(LongPrompts) {
  return {{{LongPrompts::kRefuse, "refuse"}, {LongPrompts::kTruncate, "truncate"}}};
}

// How tokens are chosen, when a continuation ends, how many rows are decoded at once.
struct DecodeHParams {
  static constexpr std::string_view kName = "Decode";
  DecodeStrategy strategy = DecodeStrategy::kSample;
  // Sampling: divide logits by the temperature, keep the top_k most probable ids, then the smallest
  // set of those whose probabilities sum to top_p.
  double temperature = 0.8;  // 0: greedy.
  int64_t top_k = 0;         // 0: no limit.
  double top_p = 1.0;
  int64_t seed = 1234;
  // Beam search: a continuation of n tokens scores log-probability / ((5 + n) / 6)^length_penalty
  // (Wu et al., arXiv 1609.08144, eq. 14, as in Pax).
  int64_t beam_size = 4;
  double length_penalty = 0.8;

  int64_t num_samples = 1;  // Per prompt; of a beam search, the best ones.
  int64_t max_decode_steps = 128;
  int64_t min_decode_steps = 0;           // No continuation ends before.
  bool stop_at_end = true;                // At the tokenizer's end-of-document token, if any.
  std::vector<std::string> stop_tokens;   // More of them: names ("<|im_end|>") or ids ("50256").
  std::vector<std::string> stop_strings;  // The text ends before the first of these.

  int64_t batch = 8;         // Rows decoded at once.
  int64_t cache_length = 0;  // Tokens of a row; 0: the longest prompt and continuation.
  // The attention window. A row whose cache holds this many tokens drops the older half and
  // continues, so that positions stay within those seen in training. 0: the training input's
  // seq_len (no limit for beam search, whose rows cannot drop tokens); -1: no limit.
  int64_t window = 0;
  int64_t prefill_chunk = 64;  // Prompt tokens per prefill call.
  LongPrompts long_prompts = LongPrompts::kRefuse;

  // For datasets: the first prompt_length tokens of a document are the prompt, the rest is the
  // reference. 0: the prompt ends before the first token with a loss weight.
  int64_t prompt_length = 0;
  int64_t num_examples = -1;  // Per dataset; -1: all.
  FIELDS(strategy, temperature, top_k, top_p, seed, beam_size, length_penalty, num_samples,
         max_decode_steps, min_decode_steps, stop_at_end, stop_tokens, stop_strings, batch,
         cache_length, window, prefill_chunk, long_prompts, prompt_length, num_examples)
};

// Throws an Error for a value out of range, with its path under `where` ("task.decode").
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

// The number of steps, and the intervals of saving, evaluation and logging.
struct TrainHParams {
  static constexpr std::string_view kName = "Train";
  int64_t num_train_steps = 10000;
  int64_t seed = 1234;           // For initial weights and dropout.
  int64_t num_microbatches = 1;  // Gradient accumulation within a step.
  // How they go through the stages of the mesh, if layers are split over those; unset: 1F1B.
  Template<PipelineSchedule> pipeline_schedule;
  // Of each piece, in the order of the model; empty: equally many. A stage holds one piece, or one
  // for each chunk of the schedule (core/passes/pipeline/table.h).
  std::vector<int64_t> layers_per_piece;
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
  FIELDS(num_train_steps, seed, num_microbatches, pipeline_schedule, layers_per_piece, remat_policy,
         save_interval_steps, save_max_to_keep, save_keep_every_steps, save_keep_best,
         eval_interval_steps, eval_loop_num_batches, eval_on_ema, metrics_interval_steps,
         summary_interval_steps, prefetch_batches, collective_timeout_seconds,
         stop_deadline_seconds, parameter_norms, init_from, early_stopping, sample)
};

// Throws an Error for a number out of range.
void check(const TrainHParams& p);

// How one dataset of an experiment's `eval_inputs` is scored. When: task.train.eval_….
struct EvalHParams {
  static constexpr std::string_view kName = "Eval";
  // Batches per evaluation; -1: all. Unset: task.train.eval_loop_num_batches.
  std::optional<int64_t> num_batches;
  // Whether each evaluation starts at the beginning. If false, the input must repeat; each
  // evaluation continues where the last one stopped, and checkpoints store the position.
  bool reset_for_eval = true;
  std::map<std::string, Template<ScoreMetric>> score_metrics;  // By name in eval lines.
  // Metrics of generated text, and how to generate it (unset: as task.decode). They use all
  // examples of the dataset, or the first decode.num_examples.
  std::map<std::string, Template<PredictMetric>> predict_metrics;
  std::optional<DecodeHParams> decode;
  FIELDS(num_batches, reset_for_eval, score_metrics, predict_metrics, decode)
};

struct EvaluationHParams {
  static constexpr std::string_view kName = "Evaluation";
  std::map<std::string, EvalHParams> datasets;  // By dataset name; defaults for those not listed.
  // Averages with a name: the members of each tag, "dataset" or "dataset/source".
  std::map<std::string, std::vector<std::string>> tags;
  // --checkpoint=follow: how often to look for a new checkpoint, and after how long without any
  // output the job counts as stopped.
  double follow_poll_seconds = 2.0;
  double follow_patience_seconds = 1800.0;
  FIELDS(datasets, tags, follow_poll_seconds, follow_patience_seconds)
};

}  // namespace tessera
