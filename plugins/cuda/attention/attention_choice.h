// SPDX-License-Identifier: Apache-2.0
// Which implementation runs an attention node: our own kernels, or cuDNN.
#pragma once

#include <memory>

#include "plugins/cuda/attention/attention_trial.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {

// "own" or "cudnn". By default cuDNN is used where it can be and agrees with our own kernels
// (attention_trial.h).
inline constexpr const char* kAttentionVariable = "TESSERA_CUDA_ATTENTION";

enum class AttentionSetting { kChecked, kOwn, kCudnn };
// Reads the environment. Error for an unknown word.
AttentionSetting attention_setting();

// The kernel of an attention node or of its gradient. Own and cuDNN's kernels save and expect the
// same values for the gradient. The choice is not timed. It depends on whether there was memory to
// compare both kernels, so a run keeps it with its timed choices (RunChoices). Error if the user
// asks for cuDNN and this GPU cannot use it.
std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         const OwnAttention& own);

}  // namespace tessera::cuda
