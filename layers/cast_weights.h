// SPDX-License-Identifier: Apache-2.0
// Weights in the dtype that a model computes in, kept as state beside those in their own: what
// reads every weight for a few tokens (a step of decoding) would else cast all of them each time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "core/graph/tensor.h"
#include "layers/parameter.h"

namespace tessera {

class CastWeights {
 public:
  // For the graph now traced; the table outlives it.
  explicit CastWeights(const ParameterTable& table);
  CastWeights(const CastWeights&) = delete;
  CastWeights& operator=(const CastWeights&) = delete;

  // The weight as it lies, whole if stacked, in this dtype: state "cache/<dtype>/<path>".
  Tensor get(int32_t index, DType dtype);
  // Updates those states that `reading`, a graph traced so, asks for, in the graph now traced.
  static void trace_casts(const Graph& reading, const ParameterTable& table,
                          const std::vector<Tensor>& parameters);

 private:
  Graph& graph_;
  const ParameterTable& table_;
  std::map<std::pair<int32_t, DType>, Tensor> made_;
};

}  // namespace tessera
