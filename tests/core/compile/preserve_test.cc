// SPDX-License-Identifier: Apache-2.0
// Passes do not change what a program computes: random programs before and after each pass, in
// double precision.
#include <cmath>

#include "core/check/numeric_gradient.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/remat/remat.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/verify.h"
#include "tests/support/catch.h"
#include "tests/support/random_program.h"

namespace tessera {
namespace {

// Passes may only reorder sums of cotangents, which changes the rounding of doubles.
constexpr double kRounding = 1e-12;

double difference(const Graph& before, const Graph& after, const ReferenceInputs& inputs) {
  const auto expected = evaluate(before, inputs), got = evaluate(after, inputs);
  double worst = expected.size() == got.size() ? 0.0 : 1.0;
  for (const auto& [name, array] : expected)
    for (size_t i = 0; i < array.values.size(); ++i)
      worst = std::max(worst, std::abs(array.values[i] - got.at(name).values[i]));
  return worst;
}

TEST_CASE("Remat, lowering, fusion and scheduling do not change results of random programs") {
  const Mesh mesh;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const char* policies[] = {"save_everything", "save_nothing", "save_dot_only", "kept"};
    INFO("seed " << seed << ", " << policies[seed % 4]);
    const Graph traced = random_program(seed);
    const ReferenceInputs inputs = sample_inputs(traced);
    const Graph remat = rematerialize(traced, parse_remat_policy(policies[seed % 4]));
    const Graph lowered = lower(remat, mesh);
    const Graph fused = fuse(lowered);
    const Graph scheduled = schedule(fused);
    for (const Graph* stage : {&remat, &lowered, &fused, &scheduled}) {
      verify(*stage, mesh);
      REQUIRE(difference(traced, *stage, inputs) < kRounding);
    }
  }
}

}  // namespace
}  // namespace tessera
