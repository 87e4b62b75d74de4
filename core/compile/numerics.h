// SPDX-License-Identifier: Apache-2.0
// The numerics of a run: in which precision a compiled step computes, adds and stores.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

enum class Numerics {
  kStandard,  // The dtypes of the configuration, by the kernels of the device.
  // Double precision, on the CPU only and slow: to tell rounding errors from others. The step is
  // traced, lowered and fused as in a standard run. Roundings to bf16 are left out; those to 8-bit
  // floats, which are ops of their own, are not.
  kF64,
  // The bits of a training step are the same on every mesh, for any number of microbatches, stages
  // and processes: on CPUs only. The batch is cut into leaves (tasks/task/leaves.h), and no sum is
  // divided between devices (core/compile/spmd/whole_sums.cc).
  kMeshInvariant,
};

// Returns a compiled graph, the last before memory planning, with every float in f64. Batch and
// scalar inputs keep their dtypes and are cast. Type rules may not hold afterwards: an optimizer's
// expects f32.
Graph in_f64(const Graph& compiled);

}  // namespace tessera
