// SPDX-License-Identifier: Apache-2.0
// Random values as pure functions of (seed, path, layer index, global element index, step).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// f32 uniform in [0, 1) of the given axes. The key is that of the traced path (a second use of a
// path has "#1" after it, and so on); `step` is an i32 scalar. Inside `repeat` the loop's index is
// mixed in as the logical layer index.
Tensor random_uniform(std::vector<Axis> axes, Operand step);

// x / keep where uniform < keep, else 0. Composite, fused; mask is recomputed in the backward pass.
Tensor dropout(Operand x, double rate, Operand step);

// The seed of random ops traced under it; 0 without one.
class SeedScope {
 public:
  explicit SeedScope(int64_t seed);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

 private:
  int64_t outer_;
};

// Random ops traced under it serve a part of the batch: examples `first` (i32 scalar), first +
// stride, … of the global one, so that masks do not depend on microbatching. Their tensors have the
// batch leading. A loop it is opened in is one over microbatches, not over layers.
class ExampleScope {
 public:
  explicit ExampleScope(const Tensor& first, int64_t stride = 1);
  ~ExampleScope();
  ExampleScope(const ExampleScope&) = delete;
  ExampleScope& operator=(const ExampleScope&) = delete;

 private:
  Tensor outer_first_;
  int64_t outer_stride_;
};

// A layer path parted into what all layers of a stack share and the index of the outermost one:
// "lm.x_layers[3].drop" -> {"lm.x_layers[].drop", 3}; no index -> {path, -1}.
struct StreamPath {
  std::string path;
  int64_t layer = -1;
};
StreamPath stream_path(std::string_view layer_path);

extern const OpDef kRandomUniformOp, kDropoutOp;

}  // namespace tessera
