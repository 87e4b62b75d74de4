// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/verify.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "tests/support/adam_step.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// Returns how many parameters each node of the fused graph updates. Its results must be those of
// the trace.
std::vector<size_t> updates_of(const Graph& traced) {
  const Graph fused = fuse_updates(lower(traced, Mesh()));
  verify(fused, Mesh());
  const ReferenceInputs inputs = adam_step_inputs(traced);
  const auto expected = evaluate(traced, inputs);
  const auto got = evaluate(fused, inputs);
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, array] : got) REQUIRE(array.values == expected.at(name).values);
  std::vector<size_t> sizes;
  for (const Node& node : fused.nodes()) {
    if (node.op == &kAdamUpdateOp) sizes.push_back(1);
    if (node.op == &kFusedUpdatesOp) sizes.push_back(node.bodies[0]->nodes().size());
  }
  return sizes;
}

using Sizes = std::vector<size_t>;

TEST_CASE("Updates that wait for the norm of all gradients are one node") {
  Graph graph;
  add_adam_step(graph, {3, 5, 2});
  REQUIRE(updates_of(graph) == Sizes{3});
  const Graph fused = fuse_updates(lower(graph, Mesh()));
  for (const Node& node : fused.nodes())
    if (node.op == &kFusedUpdatesOp) REQUIRE(node.path == "p0 and 2 more parameters");
}

TEST_CASE("Updates with moments in bf16 are one node, whatever noise rounds them") {
  Graph graph;
  add_adam_step(graph, {3, 5, 2}, {.first = "bf16", .second = "bf16"});
  REQUIRE(updates_of(graph) == Sizes{3});
}

TEST_CASE("Updates that need only their own gradient run on their own, which frees it early") {
  Graph graph;
  add_adam_step(graph, {3, 5}, {.clipped = false});
  REQUIRE(updates_of(graph) == Sizes{1, 1});
}

// Updates that share gradient and scalars; each has another weight decay.
class SharedTrial : public Trial {
 public:
  SharedTrial() : Trial(Mesh(), {"f32[\"row=3\"]", "f32[\"row=3\"]", "f32[\"row=3\"]"}) {}

  AdamState state() const { return {inputs()[0], inputs()[1], second_}; }
  AdamState update(const AdamState& old, double epsilon = 1e-8) {
    decay_ += 0.1;
    return adam_update(old, inputs()[2], norm_, norm_, norm_, yes_,
                       {.epsilon = epsilon, .weight_decay = decay_});
  }

 private:
  Tensor second_ = square(inputs()[1]), norm_ = reduce_sum(square(inputs()[2]));
  Tensor yes_ = less_equal(norm_, norm_);
  double decay_ = 0.0;
};

TEST_CASE("Updates with other coefficients are another node") {
  SharedTrial trial;
  for (const int i : {0, 1, 2, 3, 4})
    output(fmt::format("parameter {}", i),
           trial.update(trial.state(), i < 2 ? 1e-8 : 1e-3).parameter);
  REQUIRE(updates_of(trial.graph()) == Sizes{2, 3});
}

// An average of the new values is traced between the updates.
TEST_CASE("Readers of updated values follow the fused node") {
  SharedTrial trial;
  for (const int i : {0, 1})
    output(fmt::format("average {}", i), trial.update(trial.state()).parameter * 0.1);
  REQUIRE(updates_of(trial.graph()) == Sizes{2});
}

TEST_CASE("An update of what another one gives is not in its node") {
  SharedTrial trial;
  output("parameter", trial.update(trial.update(trial.state())).parameter);
  REQUIRE(updates_of(trial.graph()) == Sizes{1, 1});
}

}  // namespace
}  // namespace tessera
