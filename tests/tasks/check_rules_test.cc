// SPDX-License-Identifier: Apache-2.0
// Mesh axes that split nothing are warned of; those that split anything, in whatever way, are not.
#include "tasks/session/check_rules.h"

#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Strings = std::vector<std::string>;

const Mesh kMesh({{"data", 2}, {"mdl", 1}, {"stage", 4}});
const AxisRules kRules = {.weights = parse_rules("embed -> data"),
                          .activations = parse_rules("batch -> data")};

// Of a step of these inputs.
Strings warnings(const Strings& types, const AxisRules& rules = kRules) {
  Trial trial(kMesh, types);
  return idle_mesh_axes(rules, kMesh, trial.graph());
}

TEST_CASE("a mesh axis that no rule names is warned of with its size and the rules there are") {
  REQUIRE(warnings({"f32[\"batch/data=8 embed=16\"]"}) ==
          Strings{"mesh axis stage=4 splits nothing (no rule names it): the 4 devices along it "
                  "repeat the same work; name stage in rules.weights (now \"embed -> data\") or "
                  "rules.activations (now \"batch -> data\"), or set its size to 1"});
}

TEST_CASE("each idle axis is warned of, and axes of size 1 are not") {
  const Strings both = warnings({"f32[\"batch=8 embed=16\"]"}, {});
  REQUIRE(both.size() == 2);
  REQUIRE_THAT(both[0], Catch::StartsWith("mesh axis data=2 splits nothing"));
  REQUIRE_THAT(both[1], Catch::StartsWith("mesh axis stage=4 splits nothing") &&
                            Catch::Contains("rules.weights (now \"\")"));
}

TEST_CASE("a rule that applies to no tensor is told from a rule that is missing") {
  const AxisRules rules = {.weights = parse_rules("embed -> data, experts -> stage"),
                           .activations = parse_rules("batch -> data, experts -> (stage, data)")};
  const Strings found = warnings({"f32[\"batch/data=8 embed=16\"]"}, rules);
  REQUIRE(found.size() == 1);
  REQUIRE_THAT(found[0],
               Catch::Contains("(rules.weights has \"experts -> stage\" and rules.activations has "
                               "\"experts -> (stage, data)\", which applies to no tensor of this "
                               "model)"));
}

TEST_CASE("an axis is used by a layout in words, within others, and by a pending sum") {
  REQUIRE(warnings({"f32[\"batch/data=8 embed/stage=16\"]"}, {}).empty());
  REQUIRE(warnings({"f32[\"batch/data/stage=8 embed=16\"]"}, {}).empty());
  REQUIRE(warnings({"f32[\"batch/data=8 embed=16\" + sum(stage)]"}, {}).empty());
}

TEST_CASE("an axis that splits values of a loop alone is used") {
  Trial trial(kMesh, {"f32[\"batch/data=8 embed=32\"]"});
  repeat("layers", 3, {trial.inputs()[0]}, {},
         [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
           const Tensor part = reshard(carries[0], "batch/data embed/stage");
           return {{reshard(part * 2.0, "batch/data embed")}, {}};
         });
  REQUIRE(idle_mesh_axes(kRules, kMesh, trial.graph()).empty());
}

}  // namespace
}  // namespace tessera
