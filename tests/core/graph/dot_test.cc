// SPDX-License-Identifier: Apache-2.0
// Graphs as DOT.
#include <algorithm>

#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

Graph small_graph() {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("lm");
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed/mdl=16\"]"));
  const Tensor w = input("lm.stack.w", InputKind::kParameter,
                         parse_type("f32[\"layers=3 embed/mdl=16 out=16\"]"));
  const PathScope stack("stack");
  const auto body = [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
    const Tensor sum = einsum(carries[0], loop_slice(w), over("embed"));
    return {{rename(reshard(sum, "batch/data out/mdl"), "out", "embed") + 1.0}, {}};
  };
  output("y", repeat("layers", 3, {x}, {}, body).carries[0]);
  return graph;
}

TEST_CASE("DOT shows layers and loops as clusters, and parameters, partials and outputs") {
  const std::string dot = graph_dot(small_graph());
  REQUIRE_THAT(dot, Contains("label=\"lm\""));
  REQUIRE_THAT(dot, Contains("label=\"stack\""));
  REQUIRE_THAT(dot, Contains("label=\"repeat x 3\""));
  REQUIRE_THAT(dot, Contains("label=\"einsum\\nf32 batch/data=8 out=16 + sum(mdl)\""));
  REQUIRE_THAT(dot, Contains("label=\"add 1\\n"));
  REQUIRE_THAT(dot, Contains("label=\"w\\nf32 layers=3 embed/mdl=16 out=16\""));
  REQUIRE_THAT(dot, Contains("[style=dashed, color=\"#d0384f\"]"));
  REQUIRE_THAT(dot, Contains("label=\"output y\""));
  REQUIRE_THAT(dot, Contains("tests/core/graph/dot_test.cc:"));
}

TEST_CASE("Text in DOT is escaped, so that a name cannot add statements or attributes") {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("a\"]; n9 [URL=\"x\\");
  const Tensor x = input("x\"\\N\n\"y", InputKind::kBatch, parse_type("f32[\"row=4\"]"));
  output("z\"", tanh(x));
  const std::string dot = graph_dot(graph);
  REQUIRE_THAT(dot, Contains("label=\"a\\\"]; n9 [URL=\\\"x\\\\\""));
  REQUIRE_THAT(dot, Contains("label=\"x\\\"\\\\N\\n\\\"y\\nf32 row=4\""));
  // The names appear only in quoted strings.
  bool quoted = false;
  std::string outside;
  for (size_t i = 0; i < dot.size(); ++i) {
    if (quoted && dot[i] == '\\') {
      ++i;
    } else if (dot[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      outside += dot[i];
    }
  }
  REQUIRE_FALSE(quoted);
  REQUIRE_THAT(outside, !Contains("URL"));
  REQUIRE(std::count(outside.begin(), outside.end(), '{') ==
          std::count(outside.begin(), outside.end(), '}'));
}

}  // namespace
}  // namespace tessera
