// SPDX-License-Identifier: Apache-2.0
// The bits of a step do not depend on the number of threads: training runs on one device with 1, 2,
// 3 and 4 threads. Sizes are odd, and large enough for every kernel to use several threads.
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/processor.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

using enum TrialModel;

constexpr TrialSizes kUneven{.vocab = 307,
                             .embed = 72,
                             .heads = 6,
                             .key_heads = 2,
                             .head_dim = 12,
                             .hidden = 168,
                             .batch = 6,
                             .seq = 88};

// With dropout of probabilities, attention does not use its fused kernels.
SpmdCase trial_of(TrialModel model, bool dropout, DType compute) {
  return {.model = model,
          .repeated = model == kPax,
          .dropout = dropout,
          .compute = compute,
          .clip_norm = 0.1,
          .steps = 4,
          .sizes = kUneven};
}

// The first parameter whose trained values differ.
std::string first_difference(const NamedFloats& a, const NamedFloats& b) {
  for (const auto& [path, values] : a)
    if (!same_bits({{path, values}}, {{path, b.at(path)}})) return path;
  return "";
}

void require_same_bits(const SpmdRun& got, const SpmdRun& expected) {
  REQUIRE(got.losses == expected.losses);
  REQUIRE(got.norms == expected.norms);
  REQUIRE(first_difference(got.gradients, expected.gradients) == "");
  REQUIRE(first_difference(got.trained, expected.trained) == "");
}

TEST_CASE("a training run has the same bits on 1, 2, 3 and 4 threads", "[levels]") {
  const TrialModel model = GENERATE(kGpt2, kLlama, kPax);
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  SpmdCase trial = trial_of(model, GENERATE(false, true), compute);
  INFO(trial.text() << " at level " << level_name(cpu_level()));
  const SpmdRun one = run_spmd(trial);
  REQUIRE(one.losses.back() < one.losses.front());
  for (const int threads : {2, 3, 4}) {
    trial.threads = threads;
    INFO(threads << " threads");
    require_same_bits(run_spmd(trial), one);
  }
}

TEST_CASE("a second training run on three threads has the same bits", "[levels]") {
  SpmdCase trial = trial_of(kLlama, true, GENERATE(DType::kF32, DType::kBF16));
  trial.threads = 3;
  const SpmdRun first = run_spmd(trial);
  require_same_bits(run_spmd(trial), first);
}

}  // namespace
}  // namespace tessera
