// SPDX-License-Identifier: Apache-2.0
#include "tasks/config/strategies.h"

#include <initializer_list>

#include "core/base/error.h"

namespace tessera {
namespace {

// The same for weights and activations, so that no weight moves along mdl: all-gathers are over
// `data` only.
constexpr std::string_view kOverModel = "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
constexpr std::string_view kBatchRule = "batch -> (replica, data)";

// Joins non-empty lists of rules.
std::string rules(std::initializer_list<std::string_view> lists) {
  std::string text;
  for (const std::string_view list : lists) {
    if (!text.empty()) text += ", ";
    text += list;
  }
  return text;
}

}  // namespace

AxisRules make_rules(const RulesConfig& config) {
  return {parse_rules(config.weights), parse_rules(config.activations)};
}

RulesConfig strategy_rules(Strategy strategy) {
  switch (strategy) {
    case Strategy::kReplicas:
      return {.weights = "", .activations = rules({kBatchRule})};
    case Strategy::kFullySharded:
      return {.weights = "embed -> data", .activations = rules({kBatchRule})};
    case Strategy::kTensor:
      return {.weights = rules({kOverModel}), .activations = rules({kBatchRule, kOverModel})};
    case Strategy::kSequence:
      return {.weights = rules({kOverModel}),
              .activations = rules({"residual: seq -> mdl", kBatchRule, kOverModel})};
    case Strategy::kFullyShardedTensor:
      return {.weights = rules({"embed -> data", kOverModel}),
              .activations = rules({kBatchRule, kOverModel})};
    case Strategy::kFullyShardedSequence:
      return {.weights = rules({"embed -> data", kOverModel}),
              .activations = rules({"residual: seq -> mdl", kBatchRule, kOverModel})};
    case Strategy::kPax:
      return {.weights = rules({"embed -> data", kOverModel}),
              .activations = rules({"residual: embed -> mdl", kBatchRule, kOverModel})};
  }
  CHECK(false);
}

}  // namespace tessera
