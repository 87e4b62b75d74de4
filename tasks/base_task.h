// SPDX-License-Identifier: Apache-2.0
// What a task is: a model, a learner, and the graphs that train, evaluate and query the model. The
// trainer runs the graphs and feeds their scalars; it knows no mathematics.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "layers/models/base_model.h"
#include "tasks/train_hparams.h"
#include "tasks/decode_hparams.h"
#include "tasks/learner/learner.h"

namespace tessera {

// What graphs are traced for.
struct TraceSetting {
  Mesh mesh;
  AxisRules rules;
  Batch batch;  // The input's specification, which becomes inputs "batch/ids", …
};

// What graphs that decode are traced for. Programs of one cache (a prompt, a step) differ in `seq`
// alone.
struct DecodeSetting {
  Mesh mesh;
  AxisRules rules;
  int64_t batch = 1;  // Rows that decode at once; what the mesh splits a batch into, divides.
  int64_t seq = 1;    // New tokens of each row.
  int64_t cache_length = 0;  // Positions of a row: prompt and what is sampled.
  std::string cache = "";  // Its name, where an executor has several; states begin "cache/<name>/".
  // Weights that are computed in another dtype than theirs are kept in that one too, so that no
  // step casts them all: cast_weights_graph makes them, and must have been run.
  bool keep_cast_weights = false;
};

// Which weights a graph reads: those being trained, or their average.
enum class Weights { kTrained, kAveraged };

// Names of graph inputs and outputs that trainers and tasks agree on.
namespace names {
inline constexpr std::string_view kStep = "step";                   // i32 scalar in.
inline constexpr std::string_view kLearningRate = "learning_rate";  // f32 scalar in.
inline constexpr std::string_view kLoss = "loss";                   // f32 scalars out.
inline constexpr std::string_view kGradNorm = "grad_norm";
inline constexpr std::string_view kApplied = "applied";  // 1 or 0.
inline constexpr std::string_view kSkipped = "skipped";
inline constexpr std::string_view kSkippedInARow = "skipped_in_a_row";
inline constexpr std::string_view kLogits = "logits";
inline constexpr std::string_view kBatchPrefix = "batch/";
inline constexpr std::string_view kIds = "batch/ids";          // Of a graph that decodes.
inline constexpr std::string_view kStarts = "batch/starts";    // Likewise.
inline constexpr std::string_view kLast = "batch/last";        // Likewise.
inline constexpr std::string_view kParents = "batch/parents";  // Of one that reorders the cache.
inline constexpr std::string_view kCachePrefix = "cache/";     // State: "cache/<layer>/key".
inline constexpr std::string_view kSumPrefix = "sum/";         // sum/<metric>, weight/<metric>
inline constexpr std::string_view kWeightPrefix = "weight/";
inline constexpr std::string_view kRowSumPrefix =
    "rows/";  // The same of each example, f32["batch"]:
inline constexpr std::string_view kRowWeightPrefix = "row_weights/";  // rows add up to the sums.
inline constexpr std::string_view kRowPrefix = "row/";  // What the batch says of each: row/source.
inline constexpr std::string_view kParameterNormPrefix = "parameter_norm/";  // By path.
inline constexpr std::string_view kGradientNormPrefix = "gradient_norm/";
}  // namespace names

class BaseTask {
 public:
  virtual ~BaseTask() = default;
  virtual const BaseModel& model() const = 0;
  virtual const Learner& learner() const = 0;
  virtual const TrainHParams& train() const = 0;
  virtual const DecodeHParams& decode() const = 0;

  // A whole step: forward, gradients, clipping, update and metrics.
  virtual Graph train_graph(const TraceSetting& setting) const = 0;
  // Metric sums and weights of one batch, the loss among them, and of each of its examples. One
  // whose eval_sample_weights is 0 weighs nothing.
  virtual Graph eval_graph(const TraceSetting& setting, Weights weights) const = 0;
  // The logits of one example, of which the batch holds copies: ["seq vocab"], whole everywhere.
  virtual Graph logits_graph(const TraceSetting& setting, Weights weights) const = 0;

  // Takes `seq` new tokens of each row, whose keys and values go into the cache (state
  // "cache/…", updated in place). Inputs: batch/ids i32["batch seq"]; batch/starts i32["batch"],
  // the position of each row's first new token; batch/last i32["batch"], which of the new tokens is
  // asked about. Output: logits f32["batch vocab"] of what follows that one, whole everywhere. A
  // token sees positions up to its own: what lies behind them in the cache does not count, so
  // shorter rows may be padded, and idle ones write where they stand. Positions from cache_length
  // on are not kept. Error if the model cannot decode so.
  virtual Graph decode_graph(const DecodeSetting& setting, Weights weights) const = 0;
  // Casts the weights to the dtypes that decode_graph computes in and keeps them so (state of the
  // same executor): run before decoding, and again whenever weights have changed. It updates
  // nothing where no weight is cast: find_output or outputs() tells.
  virtual Graph cast_weights_graph(const DecodeSetting& setting, Weights weights) const = 0;
  // The cache of those graphs with its rows exchanged: row b becomes what row parents[b]
  // (i32["rows"], input batch/parents) was.
  virtual Graph reorder_cache_graph(const DecodeSetting& setting) const = 0;
};

}  // namespace tessera
