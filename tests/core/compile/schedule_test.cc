// SPDX-License-Identifier: Apache-2.0
#include "core/compile/schedule/schedule.h"

#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

std::vector<std::string> ops(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(node.op->name);
  return names;
}

using Names = std::vector<std::string>;

// States p, q, … of these types, and an update for each traced by the test.
class StateTrial : public Trial {
 public:
  explicit StateTrial(const std::vector<std::string>& types) : Trial(Mesh(), types) {
    for (size_t i = 0; i < types.size(); ++i)
      states_.push_back(
          input(std::string(1, static_cast<char>('p' + i)), InputKind::kState, inputs()[i].type()));
  }
  const Tensor& state(size_t i) const { return states_[i]; }

 private:
  std::vector<Tensor> states_;
};

TEST_CASE("An update runs as soon as its gradient is computed, which frees the gradient") {
  StateTrial trial({"f32[\"row=4\"]", "f32[\"row=4\"]"});
  const Tensor first = sin(exp(trial.inputs()[0])), second = cos(exp(trial.inputs()[1]));
  const PhaseScope update(Phase::kUpdate);
  trial.graph().add_update("p", (trial.state(0) - first).id());
  trial.graph().add_update("q", (trial.state(1) * second).id());
  const Graph scheduled = schedule(trial.graph());
  REQUIRE(ops(scheduled) == Names{"exp", "sin", "sub", "exp", "cos", "mul"});
}

TEST_CASE("An update runs in place after all readers of the value it replaces") {
  StateTrial trial({"f32[\"row=4\"]"});
  const Tensor gradient = sin(exp(trial.inputs()[0]));
  const Tensor reader = reduce_sum(trial.state(0));
  output("sum", reader);
  const PhaseScope update(Phase::kUpdate);
  trial.graph().add_update("p", (trial.state(0) - gradient).id());
  const Graph scheduled = schedule(trial.graph());
  REQUIRE(ops(scheduled) == Names{"exp", "sin", "reduce_sum", "sub"});
  const KernelFacts facts = {
      .may_overwrite = [](const Graph&, const Node&, int64_t, int64_t) { return true; }};
  REQUIRE(plan_memory(scheduled, facts).launches.size() == 4);  // No copy.
}

TEST_CASE("Every node runs once, also an update that needs a delayed cast") {
  StateTrial trial({"f32[\"row=4\"]"});
  const Tensor gradient = exp(trial.inputs()[0]);  // Delayed until the update reads it.
  const PhaseScope update(Phase::kUpdate);
  trial.graph().add_update("p", (trial.state(0) - gradient).id());
  REQUIRE(ops(schedule(trial.graph())) == Names{"exp", "sub"});
}

TEST_CASE("Casts of weights run just before their first reader") {
  StateTrial trial({"f32[\"row=4\"]"});
  const Tensor weight = cast(trial.state(0), DType::kBF16);
  const Tensor early = exp(trial.inputs()[0]);
  output("early", reduce_sum(sin(early)));
  output("late", cast(weight, DType::kF32));
  const Names order = ops(schedule(trial.graph()));
  REQUIRE(order == Names{"exp", "sin", "reduce_sum", "cast", "cast"});
}

}  // namespace
}  // namespace tessera
