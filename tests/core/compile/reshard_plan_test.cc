// SPDX-License-Identifier: Apache-2.0
// Plans between layouts: every plan computes the right array and costs no more than one written by
// hand.
#include "core/compile/spmd/reshard_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/compile/cost.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/trace.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// The steps of a plan: "reduce_scatter(data) x; all_reduce(replica)".
std::string plan_text(const Mesh& mesh, const std::string& from, const std::string& to,
                      const LinkCosts& costs = LinkCosts::bytes_only()) {
  ReshardPlanner planner(mesh, costs);  // It keeps the plan.
  std::string text;
  for (const ReshardStep& step : planner.plan(parse_type(from), parse_type(to)).steps) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{}({})", step_op(step.kind).name, fmt::join(step.mesh_axes, ","));
    if (!step.axis.empty()) text += " " + step.axis;
    if (!step.to_axis.empty()) text += "->" + step.to_axis;
  }
  return text;
}

int64_t plan_bytes(const Mesh& mesh, const Type& from, const Type& to) {
  return ReshardPlanner(mesh, LinkCosts::bytes_only()).plan(from, to).use.bytes();
}

// The array's values: each element has a different number.
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

// Checks that the plan costs no more than gathering and reducing everything, then slicing.
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

TEST_CASE("Plans between all layouts on a mesh of two axes of different size") {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  check_all_pairs(mesh, parse_type("f32[\"x=6 y=12 z=1\"]"), 1);
}

TEST_CASE("Plans between a sample of layouts on three mesh axes, two of them of equal size") {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  check_all_pairs(mesh, parse_type("f32[\"x=12 y=24\"]"), 23);
}

TEST_CASE("Plans between all layouts on three mesh axes", "[full]") {
  check_all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 3}}), parse_type("f32[\"x=12 y=24\"]"), 1);
  check_all_pairs(Mesh({{"a", 2}, {"b", 3}, {"c", 4}}), parse_type("f32[\"x=24 y=48\"]"), 7);
}

TEST_CASE("A partial maximum becomes replicated, whatever else changes") {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  const Mesh others({{"b", 3}});
  const std::vector<Type> layouts =
      all_layouts(parse_type("f32[\"x=6 y=12\"]"), others, Partials::kNone);
  for (Type from : layouts) {
    from.partial = {PartialKind::kMax, {"a"}};
    for (Type to : layouts) {
      check_pair(mesh, from, to);  // Reduced,
      to.partial = from.partial;
      check_pair(mesh, from, to);  // or kept.
    }
  }
}

TEST_CASE("An outer split that is removed is permuted inwards before it is gathered") {
  const Mesh mesh({{"a", 2}, {"b", 4}});
  const char *from = "f32[\"x/a/b=64\"]", *to = "f32[\"x/b=64\"]";
  REQUIRE(plan_text(mesh, from, to) == "permute(a,b); all_gather(a) x");
  // 8 elements of the permuted shard and 8 of the gather, against 56 of gathering everything.
  REQUIRE(plan_bytes(mesh, parse_type(from), parse_type(to)) == 4 * (8 + 8));
}

TEST_CASE("Plans shrink arrays first, gather last, and combine adjacent mesh axes") {
  const Mesh mesh = Mesh::standard({2, 4, 2});
  const std::string sum = "f32[\"x=64\" + sum(replica, data)]";
  REQUIRE(plan_text(mesh, sum, "f32[\"x/data=64\"]") ==
          "reduce_scatter(data) x; all_reduce(replica)");
  REQUIRE(plan_text(mesh, sum, "f32[\"x=64\"]") == "all_reduce(replica,data)");
  REQUIRE(plan_text(mesh, sum, "f32[\"x/data/replica=64\"]") == "reduce_scatter(data,replica) x");
  REQUIRE(plan_text(mesh, sum, "f32[\"x=64\" + sum(replica)]") == "all_reduce(data)");
  REQUIRE(plan_text(mesh, "f32[\"x/data/mdl=64\"]", "f32[\"x=64\"]") == "all_gather(data,mdl) x");
  REQUIRE(plan_text(mesh, "f32[\"x/data=64 y=64\" + sum(mdl)]", "f32[\"x/data=64 y/mdl=64\"]") ==
          "reduce_scatter(mdl) y");
  REQUIRE(plan_text(mesh, "f32[\"x=64 y=64\" + max(mdl)]", "f32[\"x=64 y=64\"]") ==
          "all_reduce(mdl)");
}

TEST_CASE("Free steps send nothing") {
  const Mesh mesh = Mesh::standard({2, 4, 2});
  REQUIRE(plan_text(mesh, "f32[\"x=64\"]", "f32[\"x/data=64\"]") == "slice(data) x");
  REQUIRE(plan_text(mesh, "f32[\"x=64\"]", "f32[\"x=64\" + sum(data, mdl)]") ==
          "mask_to_owner(data,mdl)");
  REQUIRE(plan_text(mesh, "f32[\"x/data=64\"]", "f32[\"x=64\" + sum(data)]") == "pad(data) x");
  const Mesh one = Mesh::standard({1, 1, 1});
  REQUIRE(plan_text(one, "f32[\"x/data=64\" + sum(mdl)]", "f32[\"x/mdl=64\"]") == "");
}

TEST_CASE("A split moves between axes by one all-to-all") {
  const Mesh mesh = Mesh::standard({2, 4, 2});
  REQUIRE(plan_text(mesh, "f32[\"x/data=64 y=64\"]", "f32[\"x=64 y/data=64\"]") ==
          "all_to_all(data) x->y");
  // A quarter of the shard stays.
  REQUIRE(plan_bytes(mesh, parse_type("f32[\"x/data=64 y=64\"]"),
                     parse_type("f32[\"x=64 y/data=64\"]")) == 4 * 1024 * 3 / 4);
}

TEST_CASE("Stored weights are cheapest with the mesh axes that stay outermost") {
  const Mesh mesh = Mesh::standard({1, 4, 2});
  const Type compute = parse_type("f32[\"mlp/mdl=64\"]");
  REQUIRE(plan_text(mesh, "f32[\"mlp/mdl/data=64\"]", "f32[\"mlp/mdl=64\"]") ==
          "all_gather(data) mlp");
  REQUIRE(plan_bytes(mesh, parse_type("f32[\"mlp/data/mdl=64\"]"), compute) >
          plan_bytes(mesh, parse_type("f32[\"mlp/mdl/data=64\"]"), compute));
}

TEST_CASE("Latency and slow links decide between plans of equal bytes") {
  const Mesh mesh({{"replica", 1, 2}, {"data", 4}});
  const std::string small = "f32[\"x=64\" + sum(replica, data)]", split = "f32[\"x/data=64\"]";
  // For small arrays one slow collective beats a fast one and a slow one.
  REQUIRE(plan_text(mesh, small, split, LinkCosts{}) == "all_reduce(replica,data); slice(data) x");
  REQUIRE(plan_text(mesh, "f32[\"x=6400000\" + sum(replica, data)]", "f32[\"x/data=6400000\"]",
                    LinkCosts{}) == "reduce_scatter(data) x; all_reduce(replica)");
  // In a sum over both only a slice's share crosses the slow links.
  ReshardPlanner planner(mesh);
  const LinkUse use = planner.plan(parse_type(small), parse_type("f32[\"x=64\"]")).use;
  REQUIRE(use.ici_bytes == 2 * 256 * 3 / 4);
  REQUIRE(use.dcn_bytes == 2 * 64 / 2);
  REQUIRE(use.dcn_collectives == 1);
}

TEST_CASE("Plans are deterministic") {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 3}});
  const char *from = "f32[\"x/a/b/c=12 y=24\"]", *to = "f32[\"x/c=12 y/b/a=24\"]";
  const std::string first = plan_text(mesh, from, to);
  for (int i = 0; i < 5; ++i) REQUIRE(plan_text(mesh, from, to) == first);
}

TEST_CASE("layers in pieces are gathered and split in the order of the model") {
  for (const std::vector<int64_t>& layers :
       {std::vector<int64_t>{3, 2}, {2, 3}, {1, 2, 1, 1}, {2, 1, 1, 1}}) {
    Mesh mesh({{"stage", 2}, {"data", 2}});
    mesh.divide_layers(layers);
    const std::vector<Type> types = {parse_type("f32[\"layers=5 embed=4\"]"),
                                     parse_type("f32[\"layers/stage=5 embed=4\"]"),
                                     parse_type("f32[\"layers/stage=5 embed/data=4\"]"),
                                     parse_type("f32[\"layers=5 embed/stage=4\"]"),
                                     parse_type("f32[\"layers=5 embed/data/stage=4\"]"),
                                     parse_type("f32[\"layers=5 embed=4\" + sum(stage)]"),
                                     parse_type("f32[\"layers=5 embed/data=4\" + sum(stage)]"),
                                     parse_type("f32[\"layers/stage=5 embed=4\" + sum(data)]"),
                                     parse_type("f32[\"layers=5 embed=4\" + sum(stage, data)]")};
    for (const Type& from : types)
      for (const Type& to : types) check_pair(mesh, from, to);
  }
}

TEST_CASE("no other mesh axis splits layers in pieces, or takes them over") {
  Mesh mesh({{"stage", 2}, {"data", 2}});
  const std::string from = "f32[\"layers/stage=4 embed=4\"]", to = "f32[\"layers/data=4 embed=4\"]";
  REQUIRE(plan_text(mesh, from, to) == "permute(stage,data)");
  mesh.divide_layers({1, 1, 1, 1});
  REQUIRE(plan_text(mesh, from, to) == "all_gather(stage) layers; slice(data) layers");
}

}  // namespace
}  // namespace tessera
