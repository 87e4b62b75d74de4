// SPDX-License-Identifier: Apache-2.0
// Which implementation runs an attention node: our own kernels, or cuDNN.
#pragma once

#include <memory>

#include "plugins/cuda/attention/attention_trial.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {

// "own" or "cudnn", and "nondeterministic", separated by commas. By default cuDNN is used where it
// can be and agrees with our own kernels (attention_trial.h).
inline constexpr const char* kAttentionVariable = "TESSERA_CUDA_ATTENTION";

struct AttentionSettings {
  enum class Kind { kChecked, kOwn, kCudnn };
  Kind kind = Kind::kChecked;
  bool deterministic = true;  // The gradient by cuDNN.
};
// From the environment. Error for an unknown word.
AttentionSettings attention_settings();

// The kernel of an attention node or of its gradient. Own and cuDNN's kernels save and expect the
// same values for the gradient. The choice is not timed: it depends on the GPU, the library's
// version and the node, so that it is the same in every process and after a resume, as long as
// there is memory to compare two kernels of one layer. Error if cuDNN is asked for and this GPU
// cannot use it.
std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         const OwnAttention& own);

}  // namespace tessera::cuda
