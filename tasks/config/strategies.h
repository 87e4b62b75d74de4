// SPDX-License-Identifier: Apache-2.0
// Axis rules as configured, and ready-made ones by name: the usual ways to split a transformer over
// `replica × data × mdl`. The knob `strategy` of every experiment chooses one; an experiment may
// also change one or write its own (docs/parallelism.md). Layers do not know them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/graph/rules.h"
#include "core/hparams/fields.h"

namespace tessera {

// Axis rules as text, "embed -> data, mlp -> mdl, residual: seq -> mdl" (core/graph/rules.h).
struct RulesConfig {
  static constexpr std::string_view kName = "Rules";
  std::string weights;
  std::string activations = "batch -> (replica, data)";
  FIELDS(weights, activations)
};
AxisRules make_rules(const RulesConfig& config);

// All of them split the batch over `replica` and `data`.
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
