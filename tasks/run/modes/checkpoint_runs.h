// SPDX-License-Identifier: Apache-2.0
// The modes that read checkpoints of a run: eval, decode, score and merge. They read its directory
// without a lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// --mode=eval: scores checkpoints of a run, which may be training at the same time, and writes
// eval_out/ there. Evaluation during training uses the same code (tasks/run/eval/evaluation.h). The
// exit code is 0 also when a signal stopped it. Error, after everything is scored, if a loss was
// not finite.
struct EvalOptions {
  CheckpointChoice checkpoint;
};
std::unique_ptr<BaseRun> eval_run(const RunContext& context, const EvalOptions& options);

// --mode=decode: continues prompts, or documents of datasets, and writes decoder_out/ there.
struct DecodeOptions {
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;     // None: the decode datasets.
  std::vector<std::string> prompt_ids;  // Prompts as token ids: "1 2 3".
  bool print_ids = false;               // Print ids of prompts and continuations.
};
std::unique_ptr<BaseRun> decode_run(const RunContext& context, const DecodeOptions& options);

// --mode=score: the log-likelihoods of continuations that a file of requests gives.
struct ScoringOptions {
  CheckpointChoice checkpoint;
  std::filesystem::path requests;  // A request a line (inputs/score_requests.h).
  // A line for each request; "": score_out/<name of requests>_step_<10 digits>.jsonl of the run.
  std::filesystem::path output;
  int64_t batch_tokens = 0;     // Tokens scored at once; 0: as many as a training batch, or fewer.
  bool with_log_probs = false;  // Also those of each token.
};
std::unique_ptr<BaseRun> score_run(const RunContext& context, const ScoringOptions& options);

// --mode=merge: a new run whose step 0 has the average of the weights of several checkpoints.
struct MergeOptions {
  static constexpr bool kInlined = true;
  std::filesystem::path from;
  std::vector<int64_t> steps;  // Or the newest `last`.
  std::optional<int64_t> last;
  std::vector<double> weights;  // In any unit.
  FIELDS(About(from,
               "the run whose checkpoints are averaged; the result is step 0 of --job_log_dir",
               {.unit = "DIR|URL"}),
         About(steps, "which checkpoints; may be repeated", {.unit = "STEP", .min = 0}),
         About(last, "instead: this many of the newest", {.unit = "N", .min = 2}),
         About(weights, "the share of each, in their order; may be repeated (default: equal)",
               {.unit = "SHARE"}))
};

// Error unless there are two checkpoints or more, and weights of this number with a positive sum.
std::unique_ptr<BaseRun> merge_run(const RunContext& context, const MergeOptions& options);

}  // namespace tessera
