// SPDX-License-Identifier: Apache-2.0
#include "tasks/config/experiment.h"

#include <fmt/ranges.h>

#include "core/hparams/convert.h"

namespace tessera {

ExperimentConfig with_all_evals(ExperimentConfig config) {
  std::erase_if(config.eval.datasets, [&](const auto& entry) {
    return !config.eval_inputs.contains(entry.first) &&
           same_value(to_tree(entry.second), to_tree(EvalHParams{}));
  });
  for (const auto& [name, unused] : config.eval_inputs) config.eval.datasets.try_emplace(name);
  return config;
}

ExperimentConfig Experiment::config() const {
  ExperimentConfig config = build();
  if (strategy.has()) config.rules = strategy_rules(strategy.get());
  return config;
}

AxisRules make_rules(const RulesConfig& config) {
  return {parse_rules(config.weights), parse_rules(config.activations)};
}

RulesConfig strategy_rules(Strategy strategy) {
  using enum Strategy;
  std::vector<std::string_view> weights, activations;
  if (strategy == kSequence || strategy == kFullyShardedSequence)
    activations.push_back("residual: seq -> mdl");
  if (strategy == kPax) activations.push_back("residual: embed -> mdl");
  activations.push_back("batch -> (replica, data)");
  const bool is_tensor = strategy != kReplicas && strategy != kFullySharded;
  if (strategy != kReplicas && strategy != kTensor && strategy != kSequence)
    weights.push_back("embed -> data");
  if (is_tensor) {
    // The same for weights and activations, so that no weight moves along mdl: all-gathers are over
    // `data` only.
    constexpr std::string_view kOverModel =
        "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
    weights.push_back(kOverModel);
    activations.push_back(kOverModel);
  }
  return {.weights = fmt::format("{}", fmt::join(weights, ", ")),
          .activations = fmt::format("{}", fmt::join(activations, ", "))};
}

}  // namespace tessera
