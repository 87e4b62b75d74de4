// SPDX-License-Identifier: Apache-2.0
// Plans from layout to layout: every pair does what it should to the numbers, and none costs more
// than what one would write by hand.
#include "core/passes/reshard_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/graph/ops/reshard.h"
#include "core/graph/trace.h"
#include "core/passes/collectives.h"
#include "core/passes/lower.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// "reduce_scatter(data) x; all_reduce(replica)", the steps one would read in a plan.
std::string plan_text(const Mesh& mesh, const std::string& from, const std::string& to,
                      const LinkCosts& costs = LinkCosts::bytes_only()) {
  std::string text;
  for (const ReshardStep& step : plan_reshard(parse_type(from), parse_type(to), mesh, costs)) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{}({})", step_op(step.kind), fmt::join(step.mesh_axes, ","));
    if (!step.axis.empty()) text += " " + step.axis;
    if (!step.to_axis.empty()) text += "->" + step.to_axis;
  }
  return text;
}

int64_t plan_bytes(const Mesh& mesh, const Type& from, const Type& to) {
  return ReshardPlanner(mesh, LinkCosts::bytes_only()).plan(from, to).use.bytes();
}

// The same, with each element of the array a number of its own.
std::vector<double> counted(const Type& type) {
  std::vector<double> values;
  for (int64_t i = 0; i < type.elements(); ++i) values.push_back(static_cast<double>(i + 1));
  return values;
}

void check_pair(const Mesh& mesh, const Type& from, const Type& to) {
  INFO(from.text_sized() << " to " << to.text_sized());
  Graph graph;
  {
    const AxisRules no_rules;
    const TraceScope trace(graph, mesh, no_rules);
    const Tensor x = input("x", InputKind::kBatch, from);
    graph.add_output("y", reshard(x, to).id());
  }
  const SimulatedMesh devices(graph, mesh, LinkCosts::bytes_only());
  REQUIRE(devices.run({{"x", counted(from)}}).at("y") == counted(from));
}

// At least as cheap as gathering and reducing everything, then slicing.
void check_cost(const Mesh& mesh, const Type& from, const Type& to) {
  Type whole = from;
  whole.partial = {};
  for (Axis& axis : whole.axes) axis.split.clear();
  INFO(from.text_sized() << " to " << to.text_sized());
  REQUIRE(plan_bytes(mesh, from, to) <=
          plan_bytes(mesh, from, whole) + plan_bytes(mesh, whole, to));
  Type reduced = from;
  reduced.partial = {};
  REQUIRE(plan_bytes(mesh, from, to) <=
          plan_bytes(mesh, from, reduced) + plan_bytes(mesh, reduced, to));
}

void check_all_pairs(const Mesh& mesh, const Type& type, size_t step) {
  const std::vector<Type> layouts = all_layouts(type, mesh, Partials::kSums);
  size_t number = 0;
  for (const Type& from : layouts) {
    for (const Type& to : layouts) {
      if (number++ % step != 0) continue;
      check_pair(mesh, from, to);
      check_cost(mesh, from, to);
    }
  }
}

TEST_CASE("every layout becomes every other on a mesh of two unequal axes") {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  check_all_pairs(mesh, parse_type("f32[\"x=6 y=12 z=1\"]"), 1);
}

TEST_CASE("every layout becomes every other on three axes, two of them equal: a part of all") {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  check_all_pairs(mesh, parse_type("f32[\"x=12 y=24\"]"), 23);
}

TEST_CASE("every layout becomes every other on three axes", "[full]") {
  check_all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 3}}), parse_type("f32[\"x=12 y=24\"]"), 1);
  check_all_pairs(Mesh({{"a", 2}, {"b", 3}, {"c", 4}}), parse_type("f32[\"x=24 y=48\"]"), 7);
}

TEST_CASE("an outer split that leaves is permuted inwards before it is gathered") {
  const Mesh mesh({{"a", 2}, {"b", 4}});
  const char *from = "f32[\"x/a/b=64\"]", *to = "f32[\"x/b=64\"]";
  REQUIRE(plan_text(mesh, from, to) == "permute(a,b); all_gather(a) x");
  // 8 elements of the permuted shard and 8 of the gather, against 56 of gathering everything.
  REQUIRE(plan_bytes(mesh, parse_type(from), parse_type(to)) == 4 * (8 + 8));
}

}  // namespace
}  // namespace tessera
