// SPDX-License-Identifier: Apache-2.0
// State of the traced graph that a model uses while it decodes: DecodeCache, the keys and values of
// earlier tokens, and CastWeights, the weights in the compute dtype.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"
#include "layers/parameter.h"

namespace tessera {

// Keys and values, which attention layers read and extend. While an FpropScope holds a cache the
// model decodes: the batch is a few new tokens of each row, each row at its own position.
class DecodeCache {
 public:
  // For the graph being traced. `starts` i32["batch"]: the position of each row's first new token.
  // `length`: the number of cached positions. `name` distinguishes the caches of one executor.
  DecodeCache(Tensor starts, int64_t length, std::string_view name = "");
  DecodeCache(const DecodeCache&) = delete;
  DecodeCache& operator=(const DecodeCache&) = delete;

  int64_t length() const { return length_; }
  // `starts` with the layout of the batch axis of x["batch …"].
  Tensor starts_like(Operand x) const;
  // i32["batch seq"], positions of `seq` new tokens a row. Clamped to length() - 1, since padding
  // after a row's last token may lie beyond the cache.
  Tensor positions(int64_t seq) const;

  // The cache `name` of the layer being traced, after writing rows["batch seq kv_heads head_dim"]
  // of the new tokens: ["batch kv_heads key_seq head_dim"] with key_seq = length(). The state is
  // "cache/<layer path>/<name>", or "cache/<the cache's name>/<layer path>/<name>", split like the
  // rows; stacked on `layers` inside a loop.
  Tensor extended(std::string_view name, const Tensor& rows);

  // For layers that loop (core/ops/repeat.h): the body returns `loop_slices` as its last slices,
  // and the loop's stacked results go to `end_loop`.
  std::vector<Tensor> loop_slices() const { return slices_; }
  void end_loop(const std::vector<Tensor>& stacked);

 private:
  Graph& graph_;
  std::string prefix_;  // Of the names of states.
  Tensor starts_;
  int64_t length_;
  // Of the loop being traced: names of states, and their next slices.
  std::vector<std::string> names_;
  std::vector<Tensor> slices_;
};

// Weights in the dtype that a model computes in, as state beside the originals, so that a decoding
// step, which reads every weight for a few tokens, does not cast all of them.
class CastWeights {
 public:
  // For the graph being traced; the table must outlive it.
  explicit CastWeights(const ParameterTable& table);
  CastWeights(const CastWeights&) = delete;
  CastWeights& operator=(const CastWeights&) = delete;

  // The weight in this dtype, in its stored layout, the whole stack if stacked: state
  // "cache/<dtype>/<path>".
  Tensor get(int32_t index, DType dtype);
  // Adds updates to the graph being traced, from `parameters`, of those states that `reader`, a
  // graph traced with CastWeights, reads.
  static void trace_casts(const Graph& reader, const ParameterTable& table,
                          const std::vector<Tensor>& parameters);

 private:
  Graph& graph_;
  const ParameterTable& table_;
  std::map<std::pair<int32_t, DType>, Tensor> made_;
};

// The rules without activation rules for `seq`: a single new token has no sequence to split.
AxisRules without_sequence(AxisRules rules);

// x["batch seq …"] -> ["batch …"]: in each row the element numbered `last` i32["batch"].
Tensor at_last(Operand x, const Tensor& last);

}  // namespace tessera
