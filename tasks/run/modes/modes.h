// SPDX-License-Identifier: Apache-2.0
// The modes of runexp but training (tasks/run/train/trainer.h): the options of each, and its run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/io/json.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/plan.h"
#include "tasks/run/directory/graph_drawing.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// --mode=show_batch: prints what a host's model gets in a step, without the other hosts and without
// a model.
struct ShowBatchOptions {
  static constexpr bool kInlined = true;
  int64_t step = 0;
  int64_t host = 0, hosts = 1;
  std::string dataset;
  int64_t rows = 2, length = 16;
  FIELDS(About(step, "the step that trains on the batch, from 0", {.min = 0}),
         About(host, "whose rows, of --hosts", {.min = 0}),
         About(hosts, "processes of the run, each with --devices", {.min = 1, .max = 1 << 20}),
         About(dataset, "one of eval_inputs or decode_inputs instead of the training input"),
         About(rows, "rows to print", {.min = 0}),
         About(length, "positions of each to print", {.min = 0}))
};
std::string batch_text(const RunContext& context, const ShowBatchOptions& options);
std::unique_ptr<BaseRun> show_batch_run(const RunContext& context, const ShowBatchOptions& options);

// --mode=plan: compiles the training step for any mesh, without its devices, and writes its plan:
// to standard output, to files, or as the changes since an earlier plan.
struct PlanOptions {
  std::optional<GraphStage> dump_graph;
  std::optional<Hardware> hardware;      // What the speed is predicted on.
  std::optional<Hardware> launch_costs;  // With launches, for the schedule of collectives.
  std::filesystem::path directory;       // Where the plan's files are written; empty: nowhere.
  std::filesystem::path compare_with;    // The earlier plan, or a directory with one; or empty.
  std::filesystem::path output;          // A file for the plan as JSON; or empty.
};

// The plan.json at this path, or in this directory. Error if it is no plan.
Json read_plan(const std::filesystem::path& path);

class PlanOutput {
 public:
  // Error if the earlier plan cannot be read, or a file would be replaced that is not a plan.
  explicit PlanOutput(const PlanOptions& options);

  // What is printed: the changes if an earlier plan is given, else the plan.
  std::string text(const Plan& plan) const;
  // Returns what is not written, and why; or "".
  std::string write_files(const Plan& plan) const;

 private:
  std::filesystem::path directory_, json_file_;  // Empty: not written.
  std::optional<Json> earlier_;
};

// One device is enough.
std::unique_ptr<BaseRun> plan_run(const RunContext& context, const PlanOptions& options);

// --mode=calibrate --trace=RUN: fits a hardware file to the trace of a run, or to the measured
// launches of a file, such as gpu_check's campaign.toml. It measures nothing and needs no devices.
struct RefitOptions {
  std::filesystem::path trace;      // trace.json.gz, or a file with [launches].
  Hardware hardware;                // The file to start from, whose peaks are kept.
  std::filesystem::path directory;  // Where the file is written; it may not exist yet.
};

inline bool is_launches_file(const std::filesystem::path& trace) {
  return trace.extension() == ".toml";
}

// The device is one of the kind that the measured run used, or a planned one. Errors of the
// constructor: the trace is damaged or of another program. run() writes kFittedHardwareFile and
// prints what was fitted, and the predicted step time before and after beside the measured.
std::unique_ptr<BaseRun> refit_run(const RunContext& context, const RefitOptions& options);

// The modes below read checkpoints of a run. They read its directory without a lock.

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
