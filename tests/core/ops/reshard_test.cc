// SPDX-License-Identifier: Apache-2.0
// Reshard between every ordered pair of layouts, and placement by the rules.
#include "core/ops/reshard.h"

#include "core/graph/typing.h"
#include "core/ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

// Layouts with partial sums, and the same with partial maxima.
std::vector<Type> layouts_with_maxima(const Type& type, const Mesh& mesh) {
  std::vector<Type> layouts = all_layouts(type, mesh, Partials::kSums);
  const std::vector<Type> sums = layouts;
  for (Type layout : sums) {
    if (!layout.partial) continue;
    layout.partial.kind = PartialKind::kMax;
    layouts.push_back(layout);
  }
  return layouts;
}

// Per mesh axis a maximum stays or becomes replicated; nothing else becomes a maximum.
bool legal(const Type& from, const Type& to, const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.axes()) {
    const auto is_max = [&](const Type& type) {
      return type.partial.kind == PartialKind::kMax && type.partial.over(axis.name);
    };
    const bool replicated = !split_over(to, axis.name) && !to.partial.over(axis.name);
    if (is_max(from) ? !is_max(to) && !replicated : is_max(to)) return false;
  }
  return true;
}

int check_all_pairs(const Mesh& mesh, const Type& type) {
  int pairs = 0;
  const std::vector<Type> layouts = layouts_with_maxima(type, mesh);
  for (const Type& from : layouts) {
    for (const Type& to : layouts) {
      const std::string got =
          outcome(mesh, {from.text_sized()}, [&](T t) { return reshard(t[0], to.layout()); });
      INFO(from.text() << " to " << to.text() << ": " << got);
      REQUIRE((got == to.text()) == legal(from, to, mesh));
      ++pairs;
    }
  }
  return pairs;
}

TEST_CASE("Reshard between all layouts of two axes on two mesh axes") {
  const Mesh mesh({{"data", 2}, {"mdl", 3}});
  const Type type = parse_type("f32[\"x=12 z=18\"]");
  REQUIRE(all_layouts(type, mesh, Partials::kSums).size() == 18);
  check_all_pairs(mesh, type);
}

TEST_CASE("Reshard between all layouts of two axes on three mesh axes") {
  const Mesh mesh({{"replica", 2}, {"data", 2}, {"mdl", 3}});
  const Type type = parse_type("f32[\"x=12 z=24\"]");
  REQUIRE(check_all_pairs(mesh, type) > 10000);
}

TEST_CASE("Reshard refuses changes other than of layout") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const std::vector<std::string> x = {"f32[\"b=8 e=16\"]"};
  REQUIRE(outcome(mesh, x, [](T t) { return reshard(t[0], "e b"); }) ==
          "reshard: x is f32[\"b e\"], which cannot become f32[\"e b\"]: only splits and partials "
          "may differ");
  REQUIRE(
      outcome(mesh, x, [](T t) { return reshard(t[0], "b e/modle"); }) ==
      "reshard: f32[\"b e/modle\"] uses 'modle', which the mesh (replica=1 data=2 mdl=4) lacks; "
      "did you mean 'mdl'?");
  REQUIRE(outcome(mesh, x, [](T t) { return reshard(t[0], "b/mdl e/mdl"); }) ==
          "layout \"b/mdl e/mdl\": mesh axis 'mdl' is used twice");
  REQUIRE(outcome(mesh, x, [](T t) { return reshard(t[0], "b=4 e"); }) ==
          "reshard: b is 8 in x and 4 in the target");
  REQUIRE(outcome(mesh, {"f32[\"b=8\" + max(mdl)]"}, [](T t) { return reshard(t[0], "b/mdl"); }) ==
          "reshard: x is a partial max over mdl, which may only become replicated; the target is "
          "f32[\"b/mdl\"]");
  REQUIRE(outcome(mesh, x, [](T t) { return reshard(t[0], "b e + max(mdl)"); }) ==
          "reshard: x is not a partial max over mdl; only reduce_max makes one");
}

TEST_CASE("A reshard to a value's own layout adds no node") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  Trial trial(mesh, {"f32[\"b/data=8\"]"});
  REQUIRE(reshard(trial.inputs()[0], "b/data").id() == trial.inputs()[0].id());
  REQUIRE(trial.graph().nodes().empty());
}

TEST_CASE("place follows the activation rules, by role") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  AxisRules rules;
  rules.activations = parse_rules("residual: seq -> mdl, batch -> data, mlp -> mdl");
  Graph graph;
  const TraceScope scope(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch=8 seq=8 mlp=8\"]"));
  REQUIRE(place(x).type().layout() == "batch/data seq mlp/mdl");
  REQUIRE(place(x, "residual").type().layout() == "batch/data seq/mdl mlp");
  const Tensor partial = reduce_sum(place(x), "mlp");
  REQUIRE(partial.type().layout() == "batch/data seq + sum(mdl)");
  REQUIRE(place(partial).type().layout() == "batch/data seq");
  REQUIRE(place(partial, "residual").type().layout() == "batch/data seq/mdl");
}

}  // namespace
}  // namespace tessera
