// SPDX-License-Identifier: Apache-2.0
// Helpers of tests of losses over a vocabulary: inputs, meshes that split it, and comparisons.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/remat/remat.h"
#include "core/graph/verify.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/simulated_mesh.h"

namespace tessera {

struct LossLayout {
  const char *weights, *activations;
  Mesh mesh() const { return Mesh::standard({1, 2, 2}); }
  AxisRules rules() const { return {parse_rules(weights), parse_rules(activations)}; }
};

inline constexpr LossLayout kLossLayouts[] = {
    {"", "batch -> (replica, data)"},
    {"embed -> data", "batch -> (replica, data)"},
    {"vocab -> mdl", "vocab -> mdl"},
    {"embed -> data, vocab -> mdl", "batch -> data, vocab -> mdl"},
    {"vocab -> (mdl, data)", "batch -> data, vocab -> mdl"},
    {"vocab -> mdl", "batch -> data, vocab -> mdl, residual: seq -> mdl"},
    {"", "batch -> data, seq -> mdl"}};

// Some tokens have the weight 0.
inline ReferenceInputs weighted_inputs(const Graph& graph, int64_t vocab) {
  ReferenceInputs inputs = sample_inputs(graph, vocab);
  for (size_t i = 0; i < inputs.at("weights").size(); ++i)
    inputs["weights"][i] = i % 5 == 3 ? 0.0 : 0.5 + 0.25 * static_cast<double>(i % 4);
  return inputs;
}

using LossValues = std::map<std::string, std::vector<double>>;

inline LossValues loss_values(const Graph& graph, const ReferenceInputs& inputs,
                              const Mesh& mesh = {}) {
  const Graph compiled = rematerialize(graph, parse_remat_policy("save_everything"));
  verify(compiled, mesh);
  return SimulatedMesh(compiled, mesh).run(inputs);
}

inline void require_same_losses(const LossValues& got, const LossValues& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, values] : expected) {
    double scale = 0.0;
    for (const double value : values) scale = std::max(scale, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      INFO(name << "[" << i << "]");
      REQUIRE(std::abs(got.at(name)[i] - values[i]) <= 1e-12 * scale);
    }
  }
}

}  // namespace tessera
