// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spmd/lower.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/memory/step_program.h"
#include "core/compile/remat/remat.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

int64_t count(const Graph& graph, std::string_view op) {
  int64_t found = 0;
  for (const Node& node : graph.nodes()) {
    found += node.op->name == op ? 1 : 0;
    for (const auto& body : node.bodies) found += count(*body, op);
  }
  return found;
}

TEST_CASE("Lowering makes types local and removes nodes that only concern layouts") {
  const Mesh mesh = Mesh::standard({1, 1, 1});
  Trial trial(mesh, {"f32[\"batch/data=4 embed/mdl=2\"]"});
  const Tensor x = save_for_backward(trial.inputs()[0], "x");
  const Tensor zero = constant(0.0, DType::kF32, {Axis{"batch", 4, {"data"}}});
  const Tensor sum = reduce_sum(stop_gradient(x), "embed") + reshard(zero, "batch/data + sum(mdl)");
  output("y", cast(reshard(sum, "batch"), DType::kF32));
  const Graph lowered = lower(trial.graph(), mesh);
  verify(lowered, Mesh());
  for (const char* op : {"reshard", "save_for_backward", "stop_gradient", "cast"})
    REQUIRE(count(lowered, op) == 0);
  REQUIRE(lowered.type(lowered.find_input("x")->value).text() == "f32[\"batch embed\"]");
}

TEST_CASE("Devices differ only in attributes, and a slice over mesh axes is not a view") {
  const Mesh mesh({{"data", 2}, {"mdl", 2}});
  Trial trial(mesh, {"f32[\"batch=8\"]"});
  output("a", reshard(trial.inputs()[0], "batch/data"));
  output("b", reshard(trial.inputs()[0], "batch/mdl"));
  const Graph first = lower(trial.graph(), mesh, 0), last = lower(trial.graph(), mesh, 3);
  REQUIRE(count(first, "slice") == 2);  // On device 0 both begin at 0.
  REQUIRE(count(last, "slice") == 2);
  for (const NodeId id : {NodeId(0), NodeId(1)}) {
    REQUIRE(first.node(id).attributes.get(key::kBegin) == 0);
    REQUIRE(last.node(id).attributes.get(key::kBegin) == 4);
    REQUIRE(!view_offset(last, last.node(id)));
  }
}

TEST_CASE("Equal nodes are merged, except elementwise work of different passes") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const Tensor x = trial.inputs()[0];
  output("a", exp(x) + exp(x));
  output("b", reduce_sum(x));
  {
    const PhaseScope backward(Phase::kBackward);
    output("c", exp(x));
    output("d", reduce_sum(x));
  }
  const Graph lowered = lower(trial.graph(), Mesh());
  REQUIRE(count(lowered, "exp") == 2);
  REQUIRE(count(lowered, "reduce_sum") == 1);
}

TEST_CASE("A recomputed value is not merged with its original") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const Tensor x = trial.inputs()[0];
  Tensor loss;
  {
    const RematScope region;
    loss = reduce_sum(square(exp(square(x))));
  }
  output("loss", loss);
  output("gradient", gradients(loss, {x})[0]);
  const Graph kept = lower(trial.graph(), Mesh());
  const Graph again =
      lower(rematerialize(trial.graph(), parse_remat_policy("save_nothing")), Mesh());
  REQUIRE(count(again, "exp") == count(kept, "exp") + 1);
}

TEST_CASE("Dead nodes, and unread carries, results and operands of loops, are removed") {
  Trial trial(Mesh(), {"f32[\"layers=3 row=4\"]", "f32[\"layers=3 row=4\"]", "f32[\"row=4\"]",
                       "f32[\"row=4\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  reduce_sum(exp(in[2]));
  const RepeatResult result =
      repeat("layers", 3, {in[2], in[3], in[3]}, {in[0], in[1]},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
               // Carry 0 reads carry 1; carry 2 and the second slice are read only by themselves.
               return RepeatBody{
                   {carries[0] + carries[1] * slices[0], sin(carries[1]), carries[2] * slices[1]},
                   {exp(carries[0]), cos(carries[1])}};
             });
  output("y", result.carries[0]);
  output("s", result.stacked[1]);
  const Graph lowered = lower(trial.graph(), Mesh());
  verify(lowered, Mesh());
  REQUIRE(lowered.nodes().size() == 1);
  const Loop loop(lowered.nodes().front());
  REQUIRE(loop.carries() == 2);
  REQUIRE(loop.slices() == 1);
  REQUIRE(loop.results() == 1);
  REQUIRE(count(loop.body(), "exp") == 0);
}

TEST_CASE("Results of a loop that equal each other or an operand are merged") {
  Trial trial(Mesh(), {"f32[\"layers=3 row=4\"]", "f32[\"row=4\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const RepeatResult result =
      repeat("layers", 3, {in[1]}, {in[0]},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
               const Tensor next = carries[0] * slices[0];
               return RepeatBody{{next}, {next, save_for_backward(next, "again"), slices[0]}};
             });
  output("sum", result.stacked[0] + result.stacked[1] + result.stacked[2]);
  const Graph lowered = lower(trial.graph(), Mesh());
  verify(lowered, Mesh());
  REQUIRE(Loop(lowered.nodes().front()).results() == 1);
}

TEST_CASE("An op that reads the position of its shard refuses layers in pieces") {
  Mesh mesh({{"stage", 2}});
  const auto lowered = [&](int64_t layers) {
    Trial trial(mesh, {});
    output("y", iota(Axis{"layers", layers, {"stage"}}));
    return lower(trial.graph(), mesh, 1);
  };
  mesh.divide_layers({3, 2});
  REQUIRE_THAT(
      error_of([&] { lowered(5); }),
      Catch::Contains("iota of i32[\"layers/stage\"]: its layers are in pieces (3 2), so a "
                      "device's part is not one block; reshard it to have layers whole"));
  mesh.divide_layers({2, 2});
  REQUIRE(lowered(4).nodes().front().attributes.get(key::kOrigin) == std::vector<int64_t>{2});
}

}  // namespace
}  // namespace tessera
