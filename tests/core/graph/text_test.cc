// SPDX-License-Identifier: Apache-2.0
// The text of a graph, and its drawing in DOT.
#include "core/graph/text.h"

#include <algorithm>

#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("A graph prints one line per node below its layer path") {
  Trial trial(Mesh::standard({1, 2, 4}),
              {"f32[\"batch/data=8 embed=16\"]", "f32[\"embed=16 mlp/mdl=32\"]"});
  const PathScope model("lm");
  const PathScope layer("up");
  const SourceSite line = {"up.cc", 41};
  const Tensor hidden =
      einsum({trial.inputs()[0], line}, trial.inputs()[1], over("embed")).named("hidden");
  {
    const PhaseScope phase(Phase::kBackward);
    output("result", silu({hidden, SourceSite{"up.cc", 42}}));
  }
  verify(trial.graph(), trial.mesh());
  REQUIRE(graph_text(trial.graph()) ==
          "%0 x : batch f32[\"batch/data=8 embed=16\"]\n"
          "%1 y : batch f32[\"embed=16 mlp/mdl=32\"]\n"
          "# forward lm.up\n"
          "%2:hidden = einsum(%0, %1) {contracted=[embed] output=[batch mlp]} : "
          "f32[\"batch/data=8 mlp/mdl=32\"]  @ up.cc:41\n"
          "# backward lm.up\n"
          "%3 = silu(%2:hidden) : f32[\"batch/data=8 mlp/mdl=32\"]  @ up.cc:42\n"
          "output result = %3\n");
}

TEST_CASE("Bodies are indented below their loop") {
  Trial trial(Mesh::standard({1, 1, 1}), {"f32[\"b=8\"]"});
  const auto body = [](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
    return {{tanh(carries[0])}, {}};
  };
  repeat("layers", 3, trial.inputs(), {}, body);
  const std::string text = graph_text(trial.graph());
  REQUIRE_THAT(text, Contains("= repeat(%0) {axis=layers count=3"));
  REQUIRE_THAT(text, Contains("\n  {\n    %0 index : loop i32[\"\"]\n"));
  REQUIRE_THAT(text, Contains("\n    %2 = tanh(%1) : f32[\"b=8\"]"));
  REQUIRE_THAT(text, Catch::EndsWith("  }\n"));
}

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
  REQUIRE_THAT(dot, Contains("tests/core/graph/text_test.cc:"));
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
