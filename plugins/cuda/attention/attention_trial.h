// SPDX-License-Identifier: Apache-2.0
// Compares and times two implementations of an attention node on random operands of its own shape,
// before one of them is used in a run.
#pragma once

#include <memory>
#include <string>

#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {

// Make our own kernels of an attention node, or of its gradient, and of a node of the forward op.
struct OwnAttention {
  using Make = std::unique_ptr<CudaKernel> (*)(const Graph& graph, const Node& node,
                                               Context& context);
  Make kernel, forward;
};

// What a trial of another implementation beside our own kernel found.
struct AttentionTrialResult {
  // How its results differ in the first and the last example of the batch; "" if only by rounding.
  // A result may be off by 1/64 of its root mean square on average, and no element by more than 1/8
  // of the largest: bf16 probabilities are rounded to 1/256. If the GPU has no memory for the
  // comparison, it says so.
  std::string difference;
  bool is_faster = false;  // Whether it took less time than our own kernel.
};
AttentionTrialResult try_attention(const Graph& graph, const Node& node, Context& context,
                                   const OwnAttention& own, CudaKernel& other);

}  // namespace tessera::cuda
