// SPDX-License-Identifier: Apache-2.0
// Sends and receives as nodes of a graph: nodes without results and without operands.
#include "core/ops/send.h"

#include "core/graph/text.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Names = std::vector<std::string>;

Node all_reduce(ValueId value, const std::string& mesh_axis) {
  Node node{.op = &kAllReduceOp, .inputs = {value}};
  node.attributes = {{key::kMeshAxes, Names{mesh_axis}}};
  return node;
}

// Receives h, sends its sine.
struct Relay : Trial {
  Relay() : Trial(Mesh(), {}) {
    const Type type = parse_type("f32[\"row=4\"]");
    graph().add_node(receive_node(type, "stage", 0, "h"), {type});
    graph().value(ValueId(0)).name = "h";
    graph().add_node(send_node(sin(Tensor(&graph(), ValueId(0))).id(), "stage", 2, "sine"), {});
  }
};

TEST_CASE("A receive has the type that it names, a send no result") {
  Relay relay;
  verify(relay.graph(), relay.mesh());
  relay.graph().node(NodeId(0)).attributes.set(key::kType, parse_type("f32[\"row=5\"]"));
  REQUIRE_THAT(error_of([&] { verify(relay.graph(), relay.mesh()); }),
               Contains("output 0 of receive is f32[\"row=4\"], its type rule gives "
                        "f32[\"row=5\"]"));
}

TEST_CASE("A graph with transfers is printed and drawn") {
  Relay relay;
  const std::string text = without_numbers(graph_text(relay.graph()));
  INFO(text);
  REQUIRE_THAT(graph_text(relay.graph()),
               Contains("%0:h = receive() {mesh_axes=[stage] peer=0 slot=h ") &&
                   Contains("\nsend(%1) {mesh_axes=[stage] peer=2 slot=sine}\n"));
  REQUIRE_THAT(graph_dot(relay.graph()), Contains("receive\\nh f32 row=4") && Contains("\"send\""));
}

TEST_CASE("Collectives along the mesh axes of transfers are found, in bodies too") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const auto sends = [](Tensor, std::vector<Tensor> x, auto) {
    x[0].graph()->add_node(send_node(x[0].id(), "stage", 1, "x"), {});
    return RepeatBody{{sin(x[0])}, {}};
  };
  const auto plain = [](Tensor, std::vector<Tensor> x, auto) {
    return RepeatBody{{sin(x[0])}, {}};
  };
  Graph& graph = trial.graph();
  const auto node_of = [&](ValueId value) -> const Node& {
    return graph.node(graph.value(value).producer);
  };
  const Tensor x = repeat("layers", 2, trial.inputs(), {}, plain).carries[0];
  REQUIRE(transfer_axes(graph).empty());
  const Tensor y = repeat("layers", 2, {x}, {}, sends).carries[0];
  REQUIRE(transfer_axes(graph) == Names{"stage"});
  const NodeId within = graph.add_node(all_reduce(y.id(), "data"), {y.type()});
  const NodeId across = graph.add_node(all_reduce(y.id(), "stage"), {y.type()});
  const auto along_stage = [](const Node& node) { return communicates_along({"stage"}, node); };
  REQUIRE_FALSE(along_stage(node_of(x.id())));
  REQUIRE(along_stage(node_of(y.id())));
  REQUIRE_FALSE(along_stage(graph.node(within)));
  REQUIRE(along_stage(graph.node(across)));
  REQUIRE_FALSE(communicates_along({}, graph.node(across)));
}

}  // namespace
}  // namespace tessera
