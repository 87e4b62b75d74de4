// SPDX-License-Identifier: Apache-2.0
// Members of config.json that Qwen3-MoE and Qwen3-Next have in common: experts and dense layers.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/families/parts.h"

namespace tessera {

// mlp_only_layers and decoder_sparse_step: whether each layer is dense.
std::vector<bool> bind_dense_layers(ConfigMembers& config, const LayeredLm& model);

// The experts of a layer, with its router.
struct Qwen3ExpertDefaults {
  int64_t width = 768, count = 128;
  RouterDefaults router = {};
};
MoeFeedForward::HParams& bind_qwen3_experts(ConfigMembers& config, LayeredLm& model,
                                            TransformerBlock::HParams& layer,
                                            const Qwen3ExpertDefaults& defaults);

}  // namespace tessera
