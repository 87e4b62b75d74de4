// SPDX-License-Identifier: Apache-2.0
// Errors of the verifier.
#include "core/graph/verify.h"

#include <functional>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// The verifier's message, without its prefix, for the graph y = tanh(x) changed by `break_graph`.
std::string problem(const std::function<void(Graph&)>& break_graph) {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  Trial trial(mesh, {"f32[\"b/data=8\"]", "f32[\"b=8\" + sum(mdl)]"});
  tanh(tanh(trial.inputs()[0]));
  break_graph(trial.graph());
  const std::string error = error_of([&] { verify(trial.graph(), mesh, "fuse"); });
  const size_t line = error.find(".cc:");
  return line == std::string::npos ? error : error.substr(error.find(": ", line) + 2);
}

TEST_CASE("Verifier errors name the problem, its place and the stage") {
  const std::string after = " [in the graph after fuse]";
  const std::string in_tanh = " [in tanh]" + after;
  REQUIRE(problem([](Graph&) {}) == "no error");
  REQUIRE(problem([](Graph& graph) {
            graph.value(ValueId(2)).type = parse_type("f32[\"b/data=4\"]");
          }) ==
          "output 0 of tanh is f32[\"b/data=4\"], its type rule gives f32[\"b/data=8\"]" + in_tanh);
  REQUIRE(problem([](Graph& graph) {
            graph.value(ValueId(0)).type = parse_type("f32[\"b/data=7\"]");
          }) == "x: b=7 cannot be split by data=2; the nearest size that can is 8" + after);
  REQUIRE(problem([](Graph& graph) { graph.node(NodeId(0)).inputs[0] = ValueId(3); }) ==
          "tanh reads tanh before it is computed" + in_tanh);
  REQUIRE(problem([](Graph& graph) { graph.node(NodeId(0)).inputs[0] = ValueId(9); }) ==
          "tanh reads value 9, which does not exist" + in_tanh);
  REQUIRE(problem([](Graph& graph) { graph.node(NodeId(0)).inputs[0] = ValueId(1); }) ==
          "tanh is not linear; y is partial over mdl; place(y)" + in_tanh);
  REQUIRE(problem([](Graph& graph) { graph.value(ValueId(3)).producer = NodeId(0); }) ==
          "output 0 of tanh does not name it as its producer" + in_tanh);
  REQUIRE(problem([](Graph& graph) { graph.node(NodeId(1)).outputs.clear(); }) ==
          "tanh has 0 outputs, its type rule gives 1" + in_tanh);
  REQUIRE(problem([](Graph& graph) { graph.add_output("loss", ValueId(1)); }) ==
          "loss is fetched but partial over mdl; place(loss)" + after);
  REQUIRE(problem([](Graph& graph) { graph.add_output("loss", ValueId(17)); }) ==
          "output 'loss' is value 17, which does not exist" + after);
}

TEST_CASE("A collective that does not fit its operand is refused") {
  const auto scattered = [](std::string_view axis) {
    Graph graph;
    Node node{.op = &kReduceScatterOp,
              .inputs = {graph.add_input("x", InputKind::kBatch, parse_type("f32[\"a=6\"]"))},
              .attributes = {{key::kAxis, axis}, {key::kGroup, {0, 1, 2, 3}}, {key::kIndex, 0}}};
    graph.add_node(std::move(node), {parse_type("f32[\"a=2\"]")});
    return error_of([&] { verify(graph, Mesh(), "lower"); });
  };
  const std::string after = " [in reduce_scatter] [in the graph after lower]";
  REQUIRE(scattered("a") == "reduce_scatter: a=6 of x cannot be split over 4 devices" + after);
  REQUIRE(scattered("b") == "reduce_scatter: x is f32[\"a\"], without b" + after);
}

TEST_CASE("Updates replace parameters and state of the same type") {
  const std::string after = " [in the graph after fuse]";
  const auto update = [](InputKind kind, ValueId value) {
    return problem([=](Graph& graph) {
      graph.add_input("w", kind, parse_type("f32[\"b/data=8\"]"));
      graph.add_update("w", value);
    });
  };
  REQUIRE(update(InputKind::kParameter, ValueId(2)) == "no error");
  REQUIRE(update(InputKind::kState, ValueId(0)) == "no error");
  REQUIRE(update(InputKind::kState, ValueId(1)) ==
          "'w' is f32[\"b/data=8\"], its update is f32[\"b=8\" + sum(mdl)]" + after);
  REQUIRE(update(InputKind::kBatch, ValueId(2)) ==
          "'w' is updated but is neither a parameter nor state" + after);
  REQUIRE(problem([](Graph& graph) { graph.add_update("v", ValueId(2)); }) ==
          "'v' is updated but is not an input" + after);
}

TEST_CASE("Bodies of loops are verified with the loop") {
  const Mesh mesh = Mesh::standard({1, 1, 1});
  Trial trial(mesh, {"f32[\"b=8\"]"});
  const auto step = [](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
    return {{tanh(carries[0])}, {}};
  };
  repeat("layers", 3, trial.inputs(), {}, step);
  verify(trial.graph(), mesh);
  Node& loop = trial.graph().node(NodeId(0));

  Graph wrong_rule = *loop.bodies[0];
  wrong_rule.node(NodeId(0)).inputs[0] = ValueId(0);  // The loop index, an integer.
  loop.bodies[0] = std::make_shared<const Graph>(wrong_rule);
  REQUIRE_THAT(error_of([&] { verify(trial.graph(), mesh); }),
               Catch::Contains("tanh: index is i32, expected a floating dtype"));
}

}  // namespace
}  // namespace tessera
