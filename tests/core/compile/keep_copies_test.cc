// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/simplify.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/optimizer.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A parameter "w" with its state, and operands x of steps that read it.
class WeightTrial : public Trial {
 public:
  explicit WeightTrial(const std::string& type)
      : Trial(Mesh(), {"bf16[\"row=3\"]", type, type}),
        w(input("w", InputKind::kParameter, parse_type(type))) {}

  const Tensor& x() const { return inputs()[0]; }
  void update() {
    const PhaseScope phase(Phase::kUpdate);
    const Tensor norm = reduce_sum(square(inputs()[1]));
    const AdamState next = adam_update({w, inputs()[1], square(inputs()[2])}, inputs()[1], norm,
                                       norm, norm, less_equal(norm, norm), {});
    graph().add_update("w", next.parameter.id());
    output("first", next.first_moment);
    output("second", next.second_moment);
  }

  Tensor w;
};

int64_t casts_in(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == &kCastOp && node.phase != Phase::kUpdate) ++count;
    if (is_repeat(node)) count += casts_in(*node.bodies[0]);
  }
  return count;
}

// The graph with copies, without what it does not need. With copies of the parameters its results
// are those of the trace, and the next copy is that of the next parameter.
Graph with_copies(const Graph& traced) {
  const Graph lowered = lower(traced, Mesh());
  const Graph result = dce(fuse_updates(keep_copies(lowered)));
  verify(result, Mesh());
  ReferenceInputs inputs = rounded(lowered, sample_inputs(lowered));
  const auto expected = evaluate(lowered, inputs);
  const GraphInput* const copy = result.find_input(copy_name("w"));
  if (copy != nullptr) inputs[copy->name] = inputs.at("w");  // The interpreter does not round.
  for (const auto& [name, array] : evaluate(result, inputs)) {
    INFO(name);
    const bool is_copy = copy != nullptr && name == copy->name;
    REQUIRE(array.values == expected.at(is_copy ? "w" : name).values);
  }
  return result;
}

TEST_CASE("A step reads the copy of a parameter in bf16 that the update before it has stored") {
  WeightTrial trial("f32[\"row=3\"]");
  output("y", cast(trial.w, DType::kBF16) * trial.x());
  output("z", trial.w + 1.0);  // Reads the parameter itself.
  trial.update();
  const Graph graph = with_copies(trial.graph());
  REQUIRE(casts_in(graph) == 0);
  REQUIRE(graph.find_input("bf16 of w")->kind == InputKind::kState);
  REQUIRE(graph.find_output("bf16 of w")->is_update);
  const auto update = std::ranges::find_if(
      graph.nodes(), [](const Node& node) { return node.op == &kFusedUpdatesOp; });
  REQUIRE(update->outputs.size() == 4);
  REQUIRE(graph.type(update->outputs[3]).dtype == DType::kBF16);
}

TEST_CASE("Loops in loops read slices of the copy, and no more the parameter") {
  WeightTrial trial("f32[\"layers=2 row=3\"]");
  const auto layers = [&](const Tensor& x) {
    return repeat("layers", 2, {x}, {trial.w},
                  [](const Tensor&, std::vector<Tensor> carries, std::vector<Tensor> slices) {
                    return RepeatBody{{carries[0] * cast(slices[0], DType::kBF16)}, {}};
                  })
        .carries[0];
  };
  const auto batches = [&](const Tensor&, std::vector<Tensor> carries, std::vector<Tensor>) {
    return RepeatBody{{layers(carries[0]) + carries[0]}, {}};
  };
  output("y", repeat("batches", 3, {trial.x()}, {}, batches).carries[0]);
  trial.update();
  const Graph graph = with_copies(trial.graph());
  REQUIRE(casts_in(graph) == 0);
  const Consumers all(graph);
  const std::span<const NodeId> readers = all[graph.find_input("w")->value];
  REQUIRE(readers.size() == 1);
  REQUIRE(graph.node(readers[0]).op == &kFusedUpdatesOp);
}

TEST_CASE("A parameter has no copy unless it is updated, and read in bf16") {
  WeightTrial frozen("f32[\"row=3\"]");
  output("y", cast(frozen.w, DType::kBF16) * frozen.x());
  REQUIRE(with_copies(frozen.graph()).find_input("bf16 of w") == nullptr);
  WeightTrial in_f32("f32[\"row=3\"]");
  output("y", in_f32.w + 1.0);
  in_f32.update();
  REQUIRE(with_copies(in_f32.graph()).find_input("bf16 of w") == nullptr);
}

}  // namespace
}  // namespace tessera
