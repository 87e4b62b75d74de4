// SPDX-License-Identifier: Apache-2.0
// A mesh axis that splits nothing gives a warning; an axis that splits anything gives none.
#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tasks/run/session/step_checks.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Strings = std::vector<std::string>;

const Mesh kMesh({{"data", 2}, {"mdl", 1}, {"row", 4}});
const AxisRules kRules = {.weights = parse_rules("embed -> data"),
                          .activations = parse_rules("batch -> data")};

// Warnings for a step with inputs of these types.
Strings warnings(const Strings& types, const AxisRules& rules = kRules) {
  Trial trial(kMesh, types);
  return idle_mesh_axes(rules, kMesh, trial.graph());
}

TEST_CASE("an axis that no rule names gives a warning with its size and the existing rules") {
  REQUIRE(warnings({"f32[\"batch/data=8 embed=16\"]"}) ==
          Strings{"mesh axis row=4 splits nothing (no rule names it): the 4 devices along it "
                  "repeat the same work; name row in rules.weights (now \"embed -> data\") or "
                  "rules.activations (now \"batch -> data\"), or set its size to 1"});
}

TEST_CASE("each idle axis gives a warning, axes of size 1 do not") {
  const Strings both = warnings({"f32[\"batch=8 embed=16\"]"}, {});
  REQUIRE(both.size() == 2);
  REQUIRE_THAT(both[0], Catch::StartsWith("mesh axis data=2 splits nothing"));
  REQUIRE_THAT(both[1], Catch::StartsWith("mesh axis row=4 splits nothing") &&
                            Catch::Contains("rules.weights (now \"\")"));
}

TEST_CASE("the warning distinguishes an unused rule from a missing one") {
  const AxisRules rules = {.weights = parse_rules("embed -> data, experts -> row"),
                           .activations = parse_rules("batch -> data, experts -> (row, data)")};
  const Strings found = warnings({"f32[\"batch/data=8 embed=16\"]"}, rules);
  REQUIRE(found.size() == 1);
  REQUIRE_THAT(found[0],
               Catch::Contains("(rules.weights has \"experts -> row\" and rules.activations has "
                               "\"experts -> (row, data)\", which applies to no tensor of this "
                               "model)"));
}

TEST_CASE("an axis counts as used in a layout, in a list of axes and in a pending sum") {
  REQUIRE(warnings({"f32[\"batch/data=8 embed/row=16\"]"}, {}).empty());
  REQUIRE(warnings({"f32[\"batch/data/row=8 embed=16\"]"}, {}).empty());
  REQUIRE(warnings({"f32[\"batch/data=8 embed=16\" + sum(row)]"}, {}).empty());
}

TEST_CASE("an axis that only splits values inside a loop counts as used") {
  Trial trial(kMesh, {"f32[\"batch/data=8 embed=32\"]"});
  repeat("layers", 3, {trial.inputs()[0]}, {},
         [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
           const Tensor part = reshard(carries[0], "batch/data embed/row");
           return {{reshard(part * 2.0, "batch/data embed")}, {}};
         });
  REQUIRE(idle_mesh_axes(kRules, kMesh, trial.graph()).empty());
}

TEST_CASE("only the layers of weights can be split over the stages of a pipeline") {
  const Mesh mesh({{"stage", 2}, {"data", 2}});
  const auto error = [&](const std::string& weights, const std::string& activations) {
    const AxisRules rules = {.weights = parse_rules(weights),
                             .activations = parse_rules(activations)};
    return error_of([&] { check_rules(rules, mesh); });
  };
  REQUIRE(error("layers -> stage, embed -> data", "batch -> data") == "no error");
  REQUIRE(error("layers -> data", "") == "no error");
  REQUIRE(error("layers -> stage, embed -> (data, stage)", "") ==
          "rules.weights: \"embed -> (data, stage)\" names the mesh axis stage, which is for the "
          "stages of a pipeline; only rules.weights may name it, as layers -> stage; split embed "
          "over another mesh axis");
  REQUIRE_THAT(error("layers -> (stage, data)", ""),
               Catch::StartsWith("rules.weights: \"layers -> (stage, data)\" names"));
  REQUIRE_THAT(error("", "batch -> data, layers -> stage"),
               Catch::StartsWith("rules.activations: \"layers -> stage\" names"));
}

TEST_CASE("a layout of a layer cannot split other axes over the stages of a pipeline") {
  const AxisRules rules = {.weights = parse_rules("layers -> stage"), .activations = {}};
  const Mesh mesh({{"stage", 2}});
  Trial good(mesh, {"f32[\"layers/stage=4 embed=16\"]"});
  REQUIRE_NOTHROW(check_rules(rules, good.graph()));
  Trial bad(mesh, {"f32[\"layers=4 embed/stage=16\"]"});
  REQUIRE(error_of([&] { check_rules(rules, bad.graph()); }) ==
          "f32[\"layers embed/stage\"] is split over stage, the stages of a pipeline, but only "
          "layers of weights can be: its layer has a rule or a layout of its own");
}

}  // namespace
}  // namespace tessera
