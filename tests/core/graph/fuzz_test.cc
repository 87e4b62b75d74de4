// SPDX-License-Identifier: Apache-2.0
// Random programs of random ops. Programs that the type rules accept must verify, differentiate and
// agree with finite differences; refusals must have a message; and a mesh of one device must accept
// the same programs as a mesh of many.
#include <cmath>

#include "core/devices/reference/interpreter.h"
#include "core/graph/verify.h"
#include "tests/support/catch.h"
#include "tests/support/random_layouts.h"

namespace tessera {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The loss's slope along a random direction, by central differences and by the gradients.
void check_slope(RandomLayouts& program, const Mesh& mesh, uint64_t seed) {
  const ReferenceInputs centre = program.sample(seed), direction = program.sample(seed + 1);
  ReferenceInputs ahead = centre, behind = centre;
  constexpr double kStep = 1e-5;
  for (const Tensor& x : program.inputs()) {
    const std::string name = program.graph().describe(x.id());
    for (size_t i = 0; i < centre.at(name).size(); ++i) {
      ahead[name][i] += kStep * direction.at(name)[i];
      behind[name][i] -= kStep * direction.at(name)[i];
    }
  }
  const auto loss = [&](const ReferenceInputs& inputs) {
    return evaluate(program.graph(), inputs, mesh).at("loss").values.front();
  };
  const double measured = (loss(ahead) - loss(behind)) / (2.0 * kStep);
  const auto results = evaluate(program.graph(), centre, mesh);
  double slope = 0.0;
  for (const Tensor& x : program.inputs()) {
    const std::string name = program.graph().describe(x.id());
    slope += dot(results.at("gradient of " + name).values, direction.at(name));
  }
  // The error of central differences is the third derivative times step², plus rounding over step.
  REQUIRE(slope == Approx(measured).epsilon(1e-6).margin(1e-6));
}

void run(uint64_t first_seed, uint64_t count) {
  const std::vector<Mesh> meshes = {Mesh({{"data", 2}, {"mdl", 2}}), Mesh({{"data", 4}}),
                                    Mesh({{"replica", 2}, {"data", 2}, {"mdl", 1}})};
  size_t accepted = 0, refused = 0;
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    INFO("seed " << seed);
    const Mesh& mesh = meshes[seed % meshes.size()];
    RandomLayouts program(seed, mesh);
    for (const char decision : program.decisions()) ++(decision == '1' ? accepted : refused);
    verify(program.graph(), mesh);
    program.differentiate();
    verify(program.graph(), mesh, "autodiff");
    check_slope(program, mesh, seed);
  }
  // Both outcomes must be frequent.
  REQUIRE(accepted * 4 > accepted + refused);
  REQUIRE(refused * 10 > accepted + refused);
}

TEST_CASE("Random programs verify and differentiate") { run(0, 60); }

TEST_CASE("Many random programs verify and differentiate", "[full]") { run(1000, 3000); }

TEST_CASE("A mesh of one device accepts the same programs as a mesh of many") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const RandomLayouts many(seed, Mesh({{"data", 2}, {"mdl", 2}}));
    const RandomLayouts one(seed, Mesh({{"data", 1}, {"mdl", 1}}));
    REQUIRE(many.decisions() == one.decisions());
  }
}

}  // namespace
}  // namespace tessera
