// SPDX-License-Identifier: Apache-2.0
// A task: a model, a learner, and the graphs that train, evaluate and query the model. The trainer
// runs the graphs and feeds their scalar inputs.
#pragma once

#include <string>
#include <string_view>

#include "core/base/plugin_call.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "layers/models/base_model.h"
#include "tasks/task/hparams.h"
#include "tasks/task/learner/learner.h"

namespace tessera {

// What tracing a graph needs to know.
struct TraceSetting {
  Mesh mesh;
  AxisRules rules;
  Batch batch;  // The input's specification; it becomes the graph inputs "batch/ids", …
  bool scores_tokens = false;  // Only eval_graph: also output the score of each label.
  // Only train_graph: optimizers renew what they renew at intervals (BaseOptimizer::interval).
  bool renews = false;
  bool histograms = false;  // Only train_graph: output those of weights and gradients.
};

// What tracing a decode graph needs to know. Programs that share a cache (prefill, step) differ
// only in `seq` and `encodes`.
struct DecodeSetting {
  Mesh mesh;
  AxisRules rules;
  int64_t batch = 1;  // Rows decoded at once; a multiple of what the mesh splits a batch into.
  int64_t rows_per_prompt = 1;  // Consecutive rows, on one device: the beams of a prompt.
  int64_t seq = 1;              // New tokens of each row.
  int64_t cache_length = 0;     // Positions of a row: prompt and continuation.
  int64_t encoder_length = 0;   // Tokens of a row that an encoder reads; 0: the model has none.
  bool encodes = false;         // Whether new rows' tokens of the encoder are inputs (prefill).
  std::string cache = "";       // Needed if an executor has several: states begin "cache/<name>/".
  // Keep a second copy of each weight in its compute dtype, so that no step casts it. The copies
  // are made by the program of cast_weights_graph, which must run first.
  bool keep_cast_weights = false;
};

// Which weights a graph reads: the trained ones, or their average (Learner::averages).
enum class Weights { kTrained, kAveraged };

// Names of graph inputs and outputs, shared by trainers and tasks.
namespace names {
inline constexpr std::string_view kStep = "step";  // Input, i32 scalar.
inline constexpr std::string_view kLoss = "loss";  // Output, f32 scalar.
inline constexpr std::string_view kGradNorm = "grad_norm";
inline constexpr std::string_view kApplied = "applied";  // 1 or 0.
inline constexpr std::string_view kSkipped = "skipped";
inline constexpr std::string_view kSkippedInARow = "skipped_in_a_row";
// Metrics of steps, if the learner keeps a window of them.
inline constexpr std::string_view kLossDeviations = "loss_deviations";
inline constexpr std::string_view kGradNormDeviations = "grad_norm_deviations";
inline constexpr std::string_view kLogits = "logits";
inline constexpr std::string_view kBatchPrefix = "batch/";
inline constexpr std::string_view kIds = "batch/ids";        // Input of decode graphs.
inline constexpr std::string_view kStarts = "batch/starts";  // Input of decode graphs.
inline constexpr std::string_view kLast = "batch/last";      // Input of decode graphs.
// Input of decode graphs if rotary positions depend on the length: DecodeCache's `tokens`.
inline constexpr std::string_view kTokens = "batch/tokens";
inline constexpr std::string_view kEncoderIds = "batch/encoder_ids";  // Inputs with an encoder.
inline constexpr std::string_view kEncoderSegmentIds = "batch/encoder_segment_ids";
inline constexpr std::string_view kParents = "batch/parents";  // Input of reorder_graph.
inline constexpr std::string_view kCachePrefix = "cache/";     // State: "cache/<layer>/key".
inline constexpr std::string_view kSumPrefix = "sum/";         // sum/<metric>, weight/<metric>
inline constexpr std::string_view kWeightPrefix = "weight/";
// The sum and the weight of each example, f32["batch"].
inline constexpr std::string_view kRowSumPrefix = "rows/";
inline constexpr std::string_view kRowWeightPrefix = "row_weights/";
// The log-probability of each label times its weight, f32["batch …"].
inline constexpr std::string_view kLogProbs = "log_probs";
inline constexpr std::string_view kRowPrefix = "row/";  // Batch fields of each example: row/source.
inline constexpr std::string_view kParameterNormPrefix = "parameter_norm/";  // By path.
inline constexpr std::string_view kGradientNormPrefix = "gradient_norm/";
// weights/<path> and gradients/<path>: count_magnitudes (tasks/task/histogram.h).
inline constexpr std::string_view kHistogramPrefix = "histogram/";
}  // namespace names

class BaseTask {
 public:
  virtual ~BaseTask() = default;
  virtual const BaseModel& model() const = 0;
  virtual const Learner& learner() const = 0;
  virtual const TrainHParams& train() const = 0;
  virtual const DecodeHParams& decode() const = 0;

  // A whole training step: forward, gradients, clipping, update and metrics.
  virtual Graph train_graph(const TraceSetting& setting) const = 0;
  // Sums and weights of every metric (the loss included), for the batch and for each example.
  // Examples whose eval_sample_weights is 0 have weight 0.
  virtual Graph eval_graph(const TraceSetting& setting, Weights weights) const = 0;
  // The logits of one example, ["seq vocab"], replicated. The batch holds copies of that example.
  virtual Graph logits_graph(const TraceSetting& setting, Weights weights) const = 0;

  // Appends `seq` new tokens to each row: their keys and values go into the cache (state "cache/…",
  // updated in place). Inputs: batch/ids i32["batch seq"]; batch/starts i32["batch"], the position
  // of each row's first new token; batch/last i32["batch"], the index of the new token whose
  // successor is predicted, -1 for a row without new tokens. Output: its logits, f32["batch
  // vocab"], split as the rows are. A token attends to positions up to its own, so shorter rows may
  // be padded. Writes at or after cache_length are dropped. With `encodes` also batch/encoder_ids
  // and batch/encoder_segment_ids, i32["batch encoder_seq"], of rows with new tokens. Error if the
  // model cannot decode incrementally.
  virtual Graph decode_graph(const DecodeSetting& setting, Weights weights) const = 0;
  // Casts the weights to the dtypes in which decode_graph computes and stores the results as state
  // of the same executor. Run it before decoding, and again when weights have changed. The graph
  // has no updates if no weight needs a cast.
  virtual Graph cast_weights_graph(const DecodeSetting& setting, Weights weights) const = 0;
  // Permutes the rows of each prompt in the cache: row i becomes row parents[i] of its prompt
  // (i32["batch"], input batch/parents).
  virtual Graph reorder_cache_graph(const DecodeSetting& setting) const = 0;
};

// The graph that a function of the task returns. Error, naming its class, if that lacks the output
// ("": none is needed).
template <typename Call>
Graph graph_of(const BaseTask& task, std::string_view function, std::string_view output,
               const Call& call) {
  Graph graph = calling(task, function, call);
  if (!output.empty() && graph.find_output(output) == nullptr)
    fail_in(task, function, "the graph has no output '{}'", output);
  return graph;
}

}  // namespace tessera
