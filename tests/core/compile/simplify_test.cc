// SPDX-License-Identifier: Apache-2.0
// Dead code elimination and merging of equal nodes, and which graphs they leave alone.
#include "core/compile/simplify.h"

#include "core/compile/rewrite.h"
#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("A graph in which everything is used and different stays as it is") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  output("y", sin(exp(trial.inputs()[0])));
  const std::string before = graph_text(trial.graph());
  REQUIRE(graph_text(dce(trial.graph())) == before);
  REQUIRE(graph_text(cse(trial.graph())) == before);
  REQUIRE(graph_text(trial.graph()) == before);  // Its nodes were not moved.
}

TEST_CASE("Dead nodes go, and what stays keeps its names, lines and types") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const Tensor h = exp(trial.inputs()[0]).named("h");
  cos(h);  // It has no reader.
  output("y", sin(h));
  const Graph kept = dce(trial.graph());
  REQUIRE(kept.nodes().size() == 2);
  REQUIRE(kept.node(NodeId(0)).site.line == trial.graph().node(NodeId(0)).site.line);
  const ValueId result = kept.node(NodeId(0)).outputs[0];
  REQUIRE(kept.value(result).name == "h");
  REQUIRE(kept.type(result) == h.type());
}

TEST_CASE("Values are numbered in order, also if an input was added between nodes") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const Tensor h = exp(trial.inputs()[0]);
  const Tensor late = input("late", InputKind::kBatch, h.type());
  output("y", h + late);
  REQUIRE(!is_in_order(trial.graph()));
  const Graph ordered = dce(trial.graph());
  REQUIRE(is_in_order(ordered));
  REQUIRE(ordered.inputs()[1].value == ValueId(1));
}

TEST_CASE("Equal nodes are merged, and their readers read the first") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const Tensor x = trial.inputs()[0];
  output("y", sin(exp(x)) + cos(exp(x)));
  const Graph merged = cse(trial.graph());
  REQUIRE(merged.nodes().size() == 4);
  REQUIRE(merged.node(NodeId(1)).inputs == merged.node(NodeId(2)).inputs);
}

}  // namespace
}  // namespace tessera
