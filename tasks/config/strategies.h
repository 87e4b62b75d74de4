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
