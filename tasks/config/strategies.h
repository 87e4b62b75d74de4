// SPDX-License-Identifier: Apache-2.0
// Ready-made axis rules: the usual ways to spread a transformer over `replica × data × mdl`, by
// name. An experiment may take one as it is, change it, or write rules of its own
// (docs/parallelism.md draws each). Rules only; no layer knows of them.
#pragma once

#include <array>

#include "core/hparams/enum_names.h"
#include "tasks/config/experiment.h"

namespace tessera {

// All of them split the batch over `replica` and `data`.
enum class Strategy {
  kReplicas,            // Weights whole on every device (DP).
  kFullySharded,        // Weights, gradients and optimizer split over `data` (FSDP, ZeRO-3).
  kTensor,              // Heads, mlp and vocabulary over `mdl` (Megatron TP).
  kSequence,            // kTensor, and the residual's sequence over `mdl` (Megatron SP).
  kFullyShardedTensor,  // Both splits.
  kFullyShardedSequence,
  kPax,  // kFullyShardedTensor with the residual's width over `mdl`, as in Pax.
};

constexpr std::array<EnumName<Strategy>, 7> enum_names(Strategy) {
  using enum Strategy;
  return {{{kReplicas, "replicas"},
           {kFullySharded, "fsdp"},
           {kTensor, "tensor"},
           {kSequence, "sequence"},
           {kFullyShardedTensor, "fsdp_tensor"},
           {kFullyShardedSequence, "fsdp_sequence"},
           {kPax, "pax"}}};
}

RulesConfig strategy_rules(Strategy strategy);

}  // namespace tessera
