// SPDX-License-Identifier: Apache-2.0
// JAXformer's recipes: weights, plans of their meshes, and the same numbers on one device.
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int64_t kWidth = 768, kHidden = 4 * kWidth, kLatent = 128, kRope = 128, kBlocks = 8,
                  kLayers = 6, kExperts = 16, kRows = 100277, kSharedExperts = 2;

// JAXformer's Dense: a matrix and a bias.
constexpr int64_t dense(int64_t from, int64_t to) { return from * to + to; }

constexpr int64_t attention_weights(bool with_rope) {
  const int64_t rope = dense(2 * kLatent, kRope) + dense(2 * kLatent, 12 * kRope);
  return dense(kWidth, 2 * kLatent) + dense(kLatent, 2 * kWidth) + dense(kLatent, kWidth) +
         dense(kWidth, kWidth) + (with_rope ? rope : 0);
}

constexpr int64_t kNorm = 2 * kWidth,
                  kFeedForward = dense(kWidth, kHidden) + dense(kHidden, kWidth);

// Returns the result of JAXformer's param_count(), by its layers.
constexpr int64_t original_weights(bool with_experts) {
  const int64_t experts =
      dense(kWidth, kSharedExperts * kWidth) + dense(kWidth, kExperts) + kExperts * kFeedForward;
  const int64_t block = kLayers * 2 * kNorm + (kLayers - 1) * attention_weights(true) +
                        attention_weights(false) + (kLayers - 1) * kFeedForward +
                        (with_experts ? experts : kFeedForward);
  return kRows * kWidth + kNorm + kBlocks * block;
}
static_assert(original_weights(true) == 949'248'384);

int64_t weights_of(const std::string& name) {
  const ExperimentConfig config = find_experiment(name, plugin_path({})).make()->build();
  return config.task.instantiate()->model().parameters().elements();
}

TEST_CASE("jaxformer's models have JAXformer's weights, but for its shared experts and biases") {
  const int64_t more_rows = 3 * kWidth;  // Rows added to the table: 100280 is divisible by eight.
  REQUIRE(weights_of("jaxformer.Dense") == original_weights(false) + more_rows);
  // Shared experts are feed-forward layers, and experts and routers have no biases.
  const int64_t shared = kSharedExperts * 2 * kWidth * kHidden - dense(kWidth, 2 * kWidth);
  const int64_t biases = kExperts * (kHidden + kWidth) + kExperts;
  const int64_t expected = original_weights(true) + more_rows + kBlocks * (shared - biases);
  REQUIRE(weights_of("jaxformer.Moe1B") == expected);
  REQUIRE(weights_of("jaxformer.Moe") == expected);
}

TEST_CASE("jaxformer's recipes are planned on the mesh of the reported run") {
  const TemporaryDirectory directory;
  for (const std::string name : {"jaxformer.Moe1B", "jaxformer.Dense"}) {
    const Ended plan =
        successful(run_program(directory.path(), "runexp", {"--exp=" + name, "--mode=plan"}));
    REQUIRE_THAT(plan.output, Contains("devices            32 (stage=2 replica=1 data=8 mdl=2)"));
    REQUIRE_THAT(plan.output, Contains("tokens per step    262144"));
    REQUIRE_THAT(plan.output, Contains("pipeline: GPipe, 2 stages, 4 microbatches"));
    REQUIRE_THAT(plan.output, Contains("layers of pieces                 4 4"));
    REQUIRE_THAT(plan.output,
                 !Contains("repeat the same work") && !Contains("which needs a permute"));
  }
}

TEST_CASE("jaxformer.Moe1B takes the same steps on stages, data and model as on one device") {
  const TemporaryDirectory directory;
  const auto losses = [&](const std::string& devices, const std::string& mesh) {
    successful(run_program(directory.path(), "runexp",
                           {"--exp=jaxformer.Moe1B", "--smoke", "--devices=" + devices,
                            "--job_log_dir=" + (directory / devices).string()},
                           {"compute_dtype=f32", "ici_mesh_shape=" + mesh}));
    return numbers_of(directory / devices, "loss");
  };
  const std::vector<double> many = losses("8", "[2,1,2,2]");
  const std::vector<double> one = losses("1", "[1,1,1,1]");
  REQUIRE(many.size() == static_cast<size_t>(kSmokeSteps));
  REQUIRE(many.back() < many.front());
  // Sums in another order: f32 rounding, amplified by a few steps.
  for (size_t i = 0; i < many.size(); ++i) REQUIRE(many[i] == Approx(one[i]).epsilon(1e-4));
}

}  // namespace
}  // namespace tessera
