// SPDX-License-Identifier: Apache-2.0
// The type rule of newton_schulz and what it counts; tests/tasks/task/learner/muon_test.cc has its
// values.
#include "core/ops/newton_schulz.h"

#include <cmath>

#include "core/graph/op.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh kMeshOfTwo({{"data", 2}, {"mdl", 2}});

std::string schulz_outcome(const std::string& type, const MatrixAxes& axes = {{"a"}, {"b"}},
                           const NewtonSchulzOptions& options = {}) {
  return outcome(kMeshOfTwo, {type}, [&](const std::vector<Tensor>& in) {
    return newton_schulz(in[0], axes, options);
  });
}

TEST_CASE("newton_schulz takes matrices that are whole, numbered by axes that may be split") {
  REQUIRE(schulz_outcome("f32[\"layers/data=4 a=3 b=2\"]") == "f32[\"layers/data a b\"]");
  REQUIRE(schulz_outcome("bf16[\"a=4 part/mdl=2 b=2 c=3\"]", {{"b", "c"}, {"a"}}) ==
          "bf16[\"a part/mdl b c\"]");
  REQUIRE(schulz_outcome("f32[\"a/data=4 b=2\"]").find("data") != std::string::npos);
  REQUIRE(schulz_outcome("f32[\"a=4 b=2\" + sum(data)]")
              .find("newton_schulz is not linear; x is partial") != std::string::npos);
  REQUIRE(schulz_outcome("i32[\"a=4 b=2\"]").find("newton_schulz") != std::string::npos);
  REQUIRE(schulz_outcome("f32[\"a=4 c=2\"]").find("b") != std::string::npos);
}

TEST_CASE("newton_schulz refuses axes and options that make no sense") {
  const std::string type = "f32[\"a=4 b=2\"]";
  REQUIRE(schulz_outcome(type, {{"a"}, {}}) ==
          "newton_schulz: a matrix of x has no columns, expected one axis or more");
  REQUIRE(schulz_outcome(type, {{"a"}, {"b", "a"}}) ==
          "newton_schulz: a is given twice; an axis is of rows or of columns");
  REQUIRE(schulz_outcome(type, {{"a"}, {"b"}}, {.steps = 0}) ==
          "newton_schulz: steps is 0, expected 1 or more");
  REQUIRE(schulz_outcome(type, {{"a"}, {"b"}}, {.coefficients = {1.0, NAN, 1.0}}) ==
          "newton_schulz: a coefficient is nan, expected a finite number");
  REQUIRE(schulz_outcome(type, {{"a"}, {"b"}}, {.epsilon = 0.0}) ==
          "newton_schulz: epsilon is 0, expected a positive number");
}

TEST_CASE("newton_schulz counts its products, with Gram matrices over the shorter axis") {
  for (const std::string type : {"f32[\"layers=3 a=4 b=10\"]", "f32[\"layers=3 a=10 b=4\"]"}) {
    Trial trial(Mesh(), {type});
    const Tensor y = newton_schulz(trial.inputs()[0], {{"a"}, {"b"}}, {.steps = 5});
    const Node& node = trial.graph().node(trial.graph().value(y.id()).producer);
    REQUIRE(node.op->flops(trial.graph(), node) ==
            3 * 5 * (2.0 * 4 * 4 * 10 + 2.0 * 4 * 4 * 4 + 2.0 * 4 * 4 * 10));
  }
}

}  // namespace
}  // namespace tessera
