// SPDX-License-Identifier: Apache-2.0
// Random values as pure functions of (seed, path, layer index, global element index, step).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {

// f32, uniform in [0, 1). The key comes from the traced path (later uses of a path append "#1", …);
// `step` is an i32 scalar. Inside `repeat` the loop index is the layer index.
Tensor random_uniform(std::vector<Axis> axes, Operand step);

// f32, of the standard normal distribution, from two uniform numbers each (Box and Muller, 1958).
// Error for a stack of layers whose pieces are not one equal block a stage.
Tensor random_normal(const std::vector<Axis>& axes, Operand step);

// x / keep where uniform < keep, else 0, with keep = 1 - rate. The backward pass recomputes the
// mask.
Tensor dropout(Operand x, double rate, Operand step);

// The seed of random ops traced in this scope; 0 outside.
using SeedScope = ScopedTraceState<&TraceState::seed>;

// Random ops traced in this scope are for a part of the batch: examples first, first + stride, … of
// the global batch (`first` is an i32 scalar), so that masks do not depend on microbatches. The
// first axis of their tensors is the batch. A loop around the scope is over microbatches, not
// layers.
class ExampleScope {
 public:
  explicit ExampleScope(const Tensor& first, int64_t stride = 1);

 private:
  ScopedTraceState<&TraceState::examples> examples_;
};

// A layer path without the index of its outermost stack, and that index:
// "lm.x_layers[3].drop" -> {"lm.x_layers[].drop", 3}; no index -> {path, -1}.
struct StreamPath {
  std::string path;
  int64_t layer = -1;
};
StreamPath stream_path(std::string_view layer_path);

namespace key {
// The layer (-1: none); whether the index of a loop over layers is an operand; the distance of the
// examples, of which the first is the last operand (0: the whole batch).
inline constexpr AttributeName<int64_t> kLayer{"layer"}, kPart{"part"};
inline constexpr AttributeName<bool> kLoop{"loop"};
inline constexpr AttributeName<double> kKeep{"keep"};
}  // namespace key
extern const Op kRandomUniformOp, kDropoutOp;

}  // namespace tessera
