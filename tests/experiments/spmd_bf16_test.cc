// SPDX-License-Identifier: Apache-2.0
// Computing in bf16 on a mesh. bf16 rounds to 8 bits, so each of about thirty operations adds a
// relative error of up to 2^-9, a different one where a product is summed in parts: two meshes
// differ from each other as much as each differs from f32. A mesh must be as close to f32 as one
// device is.
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

using enum TrialModel;

SpmdCase in_f32(SpmdCase trial) {
  trial.compute = DType::kF32;
  return trial;
}

void require_near(const SpmdCase& trial) {
  INFO(trial.text());
  const SpmdRun& exact = one_device_run(in_f32(trial));
  const SpmdRun& one = one_device_run(trial);
  const SpmdRun run = run_spmd(trial);
  REQUIRE(run.weights == one.weights);  // Weights are f32.
  // A loss is a mean over some hundred tokens: errors cancel to less than one rounding.
  const SpmdDifference apart = difference(run, one);
  REQUIRE(apart.loss <= 0x1p-9);
  REQUIRE(apart.norm <= 0x1p-7);
  // Each gradient: at most 1.5 times as far from f32 as one device's.
  for (const auto& [path, gradient] : exact.gradients) {
    INFO(path);
    const double floor = 0x1p-9 * gradient_norm(gradient) + 1e-6 * exact.norms.at(0);
    REQUIRE(gradient_distance(run.gradients.at(path), gradient) <=
            1.5 * gradient_distance(one.gradients.at(path), gradient) + floor);
  }
  // Ten steps at this rate move the loss by far more than this.
  REQUIRE(apart.curve <= 0x1p-7);
}

TEST_CASE("a mesh that computes in bf16 is as close to f32 as one device") {
  require_near(
      {.model = kGpt2, .ici = {1, 2, 2}, .strategy = "fsdp and tensor", .compute = DType::kBF16});
  require_near({.model = kLlama,
                .ici = {1, 4, 1},
                .strategy = "fsdp",
                .repeated = true,
                .remat = "save_nothing",
                .compute = DType::kBF16});
}

TEST_CASE("every strategy in bf16 is as close to f32 as one device", "[full][levels]") {
  for (const TrialRules& each : strategies())
    for (const TrialModel model : {kGpt2, kLlama, kPax})
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2, 2}, {1, 2, 4}})
        require_near({.model = model,
                      .ici = shape,
                      .strategy = each.name,
                      .repeated = true,
                      .compute = DType::kBF16,
                      .steps = 50});
}

}  // namespace
}  // namespace tessera
