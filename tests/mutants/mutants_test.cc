// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <map>

#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/text.h"
#include "core/graph/verify.h"
#include "core/ops/pipeline.h"
#include "core/ops/reshard.h"
#include "tests/mutants/lowered_step.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void count(const Graph& g, std::map<std::string, int>& ops) {
  for (const Node& n : g.nodes()) {
    std::string name(n.op->name);
    if (n.attributes.has(key::kOrigin)) name += "@";
    if (n.attributes.has(key::kMeshAxes)) name += "!";
    ++ops[name];
    for (auto [b, k] : run_bodies(n)) count(*b, ops);
  }
}

TEST_CASE("scratch") {
  const std::string text = std::getenv("C");
  double t0 = now();
  LoweredStep step(parse_composition(text));
  double t1 = now();
  std::vector<Graph> graphs;
  for (auto& g : step.graphs) graphs.push_back(g.graph), verify(g.graph, Mesh(), "x");
  double t2 = now();
  LoweredRun run(step, graphs);
  double t3 = now();
  auto n = run.draw(0);
  double t4 = now();
  auto m = run.draw(1);
  double t5 = now();
  fmt::print("lower {} verify {} compile {} draw {} {}; {}\n", t1 - t0, t2 - t1, t3 - t2, t4 - t3,
             t5 - t4, n.size());
  std::map<std::string, int> ops;
  count(graphs[0], ops);
  for (auto& [k, v] : ops) fmt::print("{} {}, ", k, v);
  fmt::print("\n");
  if (std::getenv("D")) fmt::print("{}\n", graph_text(graphs[std::stoul(std::getenv("D"))]));
}

}  // namespace
}  // namespace tessera
