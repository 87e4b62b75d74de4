// SPDX-License-Identifier: Apache-2.0
// Which implementation runs an attention node: our own kernels, or cuDNN.
#pragma once

#include <memory>

#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {

// "own" or "cudnn", and "nondeterministic", separated by commas.
inline constexpr const char* kAttentionVariable = "TESSERA_CUDA_ATTENTION";

struct AttentionSettings {
  bool cudnn = false;
  bool deterministic = true;  // The gradient by cuDNN.
};
// From the environment. Error for an unknown word.
AttentionSettings attention_settings();

// The kernel of an attention node or of its gradient. Own and cuDNN's kernels save and expect the
// same values for the gradient. Error if cuDNN is asked for and this GPU cannot use it.
std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         std::unique_ptr<CudaKernel> own);

}  // namespace tessera::cuda
