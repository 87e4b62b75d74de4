// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in random.cu.
#pragma once

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// Which elements of which stream (core/base/random.h). Element i of the shard is element
// first + offset of i in `space`, + *first_example * example_elements, of the global array.
struct RandomParameters {
  StridedSpace<1> space;
  int64_t elements;  // Elements of the shard.
  int64_t first, example_elements;
  uint64_t path_hash;
  int64_t layer;
  const int32_t *step, *loop_index, *first_example;  // Scalars; null: `layer` is the layer, none.
};

struct UniformParameters {
  RandomParameters random;
  float* y;
};

struct DropoutParameters {
  RandomParameters random;
  const void* x;
  void* y;
  float keep, factor;  // factor = 1 / keep.
};

}  // namespace tessera::cuda
