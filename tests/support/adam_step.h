// SPDX-License-Identifier: Apache-2.0
// The update of several parameters by Adam, as a learner traces it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/run_graph.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"

namespace tessera {

struct AdamStepOptions {
  bool clipped = true;  // Gradients are scaled by a number that depends on all of them.
  double beta2 = 0.95;
  std::string first = "f32", second = "f32";  // The dtypes of the moments.
  Rounding rounding = Rounding::kStochastic;
};

// Parameters p0, p1, … of these sizes in f32, with moments m0, v0, … and gradients g0, …; every
// second has weight decay.
inline void add_adam_step(Graph& graph, const std::vector<int64_t>& sizes,
                          const AdamStepOptions& options = {}) {
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope scope(graph, mesh, rules);
  const PhaseScope phase(Phase::kUpdate);
  const auto state = [&](char letter, size_t i, const std::string& dtype = "f32") {
    return input(fmt::format("{}{}", letter, i), InputKind::kState,
                 parse_type(fmt::format("{}[\"row={}\"]", dtype, sizes[i])));
  };
  const auto number = [](double value) { return constant(value, DType::kF32); };
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < sizes.size(); ++i) gradients.push_back(state('g', i));
  const Tensor norm = options.clipped ? squared_norm(gradients) : number(3.0);
  const Tensor scale = number(1.0) / (norm + 1.0), apply = less_equal(number(0.0), norm);
  const Tensor rate = input("rate", InputKind::kScalar, make_type(DType::kF32, {}));
  const Tensor count = input("count", InputKind::kScalar, make_type(DType::kF32, {}));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const PathScope path(fmt::format("p{}", i));
    const AdamState next =
        adam_update({state('p', i), state('m', i, options.first), state('v', i, options.second)},
                    gradients[i], rate, count, scale, apply,
                    {.beta2 = options.beta2,
                     .weight_decay = i % 2 == 0 ? 0.1 : 0.0,
                     .rounding = options.rounding});
    graph.add_update(fmt::format("p{}", i), next.parameter.id());
    graph.add_update(fmt::format("m{}", i), next.first_moment.id());
    graph.add_update(fmt::format("v{}", i), next.second_moment.id());
  }
}

// Values for its inputs. Second moments are not negative.
inline ReferenceInputs adam_step_inputs(const Graph& graph) {
  ReferenceInputs inputs = rounded(graph, sample_inputs(graph));
  for (auto& [name, values] : inputs)
    if (name[0] == 'v')
      for (double& value : values) value = std::abs(value);
  inputs["rate"] = {0.125};
  inputs["count"] = {3.0};
  return inputs;
}

}  // namespace tessera
