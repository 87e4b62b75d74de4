// SPDX-License-Identifier: Apache-2.0
// docs/graph.md against the code: the list of ops and the example. TESSERA_UPDATE_GOLDENS=1 draws
// the example again (with graphviz).
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/process.h"
#include "core/graph/op.h"
#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/" + path);
  REQUIRE(file.is_open());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  REQUIRE(from != std::string::npos);
  const size_t to = text.find(end, from + begin.size());
  REQUIRE(to != std::string::npos);
  return text.substr(from + begin.size(), to - from - begin.size());
}

std::set<std::string> backticked(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const size_t end = text.find('`', at + 1);
    names.insert(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

TEST_CASE("docs/graph.md lists exactly the registered ops") {
  const std::string table = between(read("docs/graph.md"), "| family | ops |", "### Adding one");
  std::set<std::string> ops;
  for (const OpDef* op : all_ops()) ops.insert(std::string(op->name));
  REQUIRE(backticked(table) == ops);
}

// Without a source line.
Operand quiet(const Tensor& tensor) { return {tensor, SourceSite{}}; }

TEST_CASE("The example of docs/graph.md prints and is drawn as shown") {
  const Mesh mesh({{"data", 2}, {"mdl", 4}});
  AxisRules rules;
  rules.activations = parse_rules("batch -> data, mlp -> mdl");
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed=16\"]"));
  const auto weight = [](const char* name, const char* type) {
    return input(name, InputKind::kParameter, parse_type(type));
  };
  const Tensor gate = weight("gate", "f32[\"embed=16 mlp/mdl=32\"]");
  const Tensor up = weight("up", "f32[\"embed=16 mlp/mdl=32\"]");
  const Tensor down = weight("down", "f32[\"mlp/mdl=32 embed=16\"]");
  const PathScope layer("ffn");
  const Tensor gated = silu(quiet(einsum(quiet(x), gate, over("embed"))));
  const Tensor hidden = mul(quiet(gated), einsum(quiet(x), up, over("embed")));
  output("y", place(quiet(einsum(quiet(hidden), down, over("mlp")))));

  REQUIRE(graph_text(graph) == between(read("docs/graph.md"), "```text\n", "```"));
  const bool update = std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr;
  if (update) {
    const std::string file = std::string(TESSERA_SOURCE_DIR) + "/docs/images/feed_forward";
    std::ofstream(file + ".dot") << graph_dot(graph);
    ChildProcess dot({"dot", "-Tsvg", "-o", file + ".svg", file + ".dot"});
    REQUIRE(dot.wait(std::chrono::steady_clock::now() + std::chrono::minutes(1)) == 0);
  }
  REQUIRE(graph_dot(graph) == read("docs/images/feed_forward.dot"));
}

}  // namespace
}  // namespace tessera
