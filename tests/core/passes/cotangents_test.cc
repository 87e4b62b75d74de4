// SPDX-License-Identifier: Apache-2.0
#include "core/passes/autodiff/autodiff.h"

#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh kMesh({{"data", 2}, {"mdl", 4}});

// The type of the first input as a cotangent of a value of the second type.
std::string as_cotangent_of(const std::string& contribution, const std::string& primal) {
  Trial trial(kMesh, {contribution, primal});
  return as_cotangent(trial.inputs()[0], trial.inputs()[1].type()).type().text_sized();
}

TEST_CASE("A cotangent has the axis order of its value, also for equal sizes") {
  REQUIRE(as_cotangent_of("f32[\"mlp=8 embed=8\"]", "f32[\"embed=8 mlp=8\"]") ==
          "f32[\"embed=8 mlp=8\"]");
}

TEST_CASE(
    "A cotangent has the dtype and splits of its value, and stays partial where the value is "
    "replicated") {
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "bf16[\"embed=8\"]") ==
          "bf16[\"embed=8\" + sum(data)]");
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "f32[\"embed/data=8\"]") ==
          "f32[\"embed/data=8\"]");
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "f32[\"embed=8\" + sum(data)]") ==
          "f32[\"embed=8\"]");
}

}  // namespace
}  // namespace tessera
