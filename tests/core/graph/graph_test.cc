// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <vector>

#include "core/ops/elementwise.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const Type kType = parse_type("f32[\"b=4\"]");

NodeId add(Graph& graph, ValueId a, ValueId b) {
  return graph.add_node({.op = &kAddOp, .inputs = {a, b}}, {kType});
}

std::vector<NodeId> readers(const Graph& graph, ValueId value) {
  const Consumers consumers(graph);
  return {consumers[value].begin(), consumers[value].end()};
}

TEST_CASE("Copied inputs are found by name, beside those added before and after") {
  Graph first;
  first.add_input("a", InputKind::kParameter, kType);
  first.add_input("b", InputKind::kBatch, kType);
  Graph second;
  second.copy_inputs(first);
  second.add_input("c", InputKind::kScalar, kType);
  Graph third;
  third.copy_inputs(second);
  REQUIRE(third.inputs().size() == 3);
  for (const char* name : {"a", "b", "c"}) REQUIRE(third.find_input(name)->name == name);
  REQUIRE(third.find_input("a")->kind == InputKind::kParameter);
  REQUIRE(first.find_input("c") == nullptr);
  REQUIRE(error_of([&] { third.add_input("b", InputKind::kBatch, kType); }) ==
          "the graph already has an input 'b'");

  const std::vector<GraphInput>& inputs = third.inputs();
  third.order_inputs({inputs[2].value, inputs[0].value, inputs[1].value});
  REQUIRE(inputs[0].name == "c");
  for (const char* name : {"a", "b", "c"}) REQUIRE(third.find_input(name)->name == name);
  REQUIRE(second.find_input("c") == &second.inputs()[2]);
}

TEST_CASE("Consumers of a value are listed once per operand, in the order of the graph") {
  Graph graph;
  const ValueId a = graph.add_input("a", InputKind::kBatch, kType);
  const ValueId unread = graph.add_input("b", InputKind::kBatch, kType);
  const NodeId twice = add(graph, a, a);
  const ValueId sum = graph.node(twice).outputs[0];
  const NodeId later = add(graph, sum, a);
  REQUIRE(readers(graph, a) == std::vector{twice, twice, later});
  REQUIRE(readers(graph, sum) == std::vector{later});
  REQUIRE(readers(graph, unread).empty());
  REQUIRE(readers(graph, graph.node(later).outputs[0]).empty());
}

TEST_CASE("A type is shared by the copies of a value, and changes in none of them") {
  Graph graph;
  const ValueId a = graph.add_input("a", InputKind::kBatch, kType);
  Graph copy = graph;
  REQUIRE(&copy.type(a) == &graph.type(a));
  copy.value(a).type = parse_type("f32[\"b=8\"]");
  REQUIRE(graph.type(a) == kType);
  REQUIRE(graph.value(a).type == SharedType(kType));
}

}  // namespace
}  // namespace tessera
