// SPDX-License-Identifier: Apache-2.0
// Shampoo's state on meshes, which sides have statistics, the size of its updates, and what is
// refused. optimizer_golden_test.cc has its values, muon_test.cc its updates on meshes.

#include <cmath>

#include "core/graph/trace.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/testing/tested_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/golden_noise.h"

namespace tessera {
namespace {

using Catch::Contains;

// "momentum f32[…]; left f32[…]; …" of a weight stored so on a mesh.
std::string state_on(const Mesh& mesh, const std::string& stored, const Shampoo::HParams& p,
                     const FanAxes& fans = {{"embed"}, {"mlp"}}) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Type type = parse_type("f32[\"" + stored + "\"]");
  std::string text;
  for (const auto& [name, slot] : checked_slots(Shampoo(p), {"w", type, fans}))
    text += (text.empty() ? "" : "; ") + name + " " + slot.text_sized();
  return text;
}

TEST_CASE("Shampoo's state is shared by the devices that hold parts of the weight") {
  const Shampoo::HParams plain{.momentum = 0.0, .root_interval = 1};
  const Mesh two({{"data", 2}}), four({{"data", 2}, {"mdl", 2}});
  REQUIRE(state_on(Mesh(), "embed=6 mlp=4", plain) ==
          "left f32[\"embed=6 shampoo=6\"]; right f32[\"mlp=4 shampoo=4\"]");
  REQUIRE(state_on(two, "embed/data=6 mlp=5", plain) ==
          "left f32[\"embed/data=6 shampoo=6\"]; right f32[\"mlp=5 shampoo=5\"]");
  REQUIRE(state_on(two, "layers=4 embed/data=6 mlp=4", plain) ==
          "left f32[\"layers/data=4 embed=6 shampoo=6\"]; "
          "right f32[\"layers/data=4 mlp=4 shampoo=4\"]");
  REQUIRE(state_on(two, "layers=3 embed/data=6 mlp=4", plain) ==
          "left f32[\"layers=3 embed/data=6 shampoo=6\"]; "
          "right f32[\"layers=3 mlp/data=4 shampoo=4\"]");
  REQUIRE(state_on(four, "embed/data=6 heads/mdl=2 head_dim=3", plain,
                   {{"embed"}, {"heads", "head_dim"}}) ==
          "left f32[\"embed/data=6 shampoo=6\"]; right f32[\"heads/data=6 shampoo=6\"]");
  REQUIRE(state_on(Mesh(), "embed=6 mlp=4", {.max_precondition_dims = 4}) ==
          "momentum f32[\"embed=6 mlp=4\"]; right f32[\"mlp=4 shampoo=4\"]; "
          "right_root f32[\"mlp=4 shampoo=4\"]");
}

// The weights of two matrices after steps from 0; gradients of the first are zeros.
std::vector<double> stepped(const std::vector<double>& gradient, const std::vector<double>& sizes) {
  TestedOptimizer shampoo(
      Shampoo::HParams{.learning_rate = 0.5, .momentum = 0.0, .weight_decay = 0.0},
      {.type = "f32[\"layers=2 embed=5 mlp=3\"]", .weight = std::vector<double>(30, 0.0)});
  for (const double size : sizes) {
    std::vector<double> scaled(15, 0.0);
    for (const double each : gradient) scaled.push_back(size * each);
    shampoo.step(scaled);
  }
  return shampoo.weight();
}

TEST_CASE("an update's RMS is at most 1, whatever the size of gradients, and 0 without one") {
  const auto rms_of = [](const std::vector<double>& weights) {
    double squares = 0.0;
    for (size_t i = 0; i < 15; ++i) REQUIRE(weights[i] == 0.0);
    for (size_t i = 15; i < 30; ++i) squares += weights[i] * weights[i];
    return std::sqrt(squares / 15.0);
  };
  const std::vector<double> gradient = golden_noise("gradient", 15);
  // The first update has three equal singular values.
  for (const double size : {1.0, 1e-12})
    REQUIRE(rms_of(stepped(gradient, {size})) == Approx(0.5 * std::pow(3.0 / 5, 0.25)));
  // The second is of a gradient much larger than the mean.
  const double first = rms_of(stepped(gradient, {1.0}));
  REQUIRE(rms_of(stepped(gradient, {1.0, 100.0})) == Approx(first + 0.5));
}

std::string shampoo_error(const Shampoo::HParams& p, const std::string& axes = "embed=4 mlp=2") {
  return error_of([&] {
    const Parameter weight{.path = "lm.w", .type = parse_type("f32[\"" + axes + "\"]"), .init = {}};
    Template<BaseOptimizer>(p).instantiate()->for_parameter(weight);
  });
}

TEST_CASE("Shampoo gives vectors, tables and matrices with two large sides to another optimizer") {
  REQUIRE(shampoo_error({.max_precondition_dims = 1, .other_tpl = {}}) ==
          "Shampoo: 'lm.w' is f32[\"embed=4 mlp=2\"], and no matrix for Shampoo (both sides are "
          "larger than max_precondition_dims); set other_tpl to the optimizer of such weights, for "
          "example AdamW");
  REQUIRE_THAT(shampoo_error({.other_tpl = {}}, "embed=4"),
               Contains("no axes of inputs and outputs"));
  REQUIRE_THAT(shampoo_error({.other_tpl = {}}, "vocab=4 embed=2"), Contains("has its axis vocab"));
}

TEST_CASE("Shampoo refuses damping below f32's precision, other intervals and state in bf16") {
  REQUIRE_THAT(shampoo_error({.damping = 1e-9}), Contains("Shampoo: damping is 1e-09, expected"));
  REQUIRE(shampoo_error({.other_tpl = SophiaG::HParams{.hessian_interval = 5}}) ==
          "Shampoo: root_interval is 10, but other_tpl renews its state every 5 steps; expected "
          "one interval");
  REQUIRE(Shampoo({.root_interval = 1, .other_tpl = SophiaG::HParams{}}).interval() == 10);
  REQUIRE_THAT(shampoo_error({.state = {.second_moment = DType::kBF16}}),
               Contains("state.second_moment is bf16, but Shampoo"));
}

}  // namespace
}  // namespace tessera
