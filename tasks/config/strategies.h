// SPDX-License-Identifier: Apache-2.0
// Named sets of axis rules: the usual ways to shard a transformer over `replica × data × mdl`. An
// experiment may use one, change it, or write its own rules (docs/parallelism.md draws each).
#pragma once

#include <array>

#include "core/hparams/fields.h"
#include "tasks/config/experiment.h"

namespace tessera {

// All of them shard the batch over `replica` and `data`.
enum class Strategy {
  kReplicas,            // Data parallelism: weights replicated.
  kFullySharded,        // FSDP (ZeRO-3): weights, gradients and optimizer state over `data`.
  kTensor,              // Megatron tensor parallelism: heads, mlp and vocab over `mdl`.
  kSequence,            // kTensor plus Megatron sequence parallelism of the residual over `mdl`.
  kFullyShardedTensor,  // kFullySharded and kTensor.
  kFullyShardedSequence,
  kPax,  // kFullyShardedTensor with the residual's embed axis over `mdl`, as in Pax.
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
