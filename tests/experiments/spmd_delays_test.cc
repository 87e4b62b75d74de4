// SPDX-License-Identifier: Apache-2.0
// With random delays of devices a step gives the same bits: the order of a sum does not depend on
// arrival.
#include <chrono>
#include <random>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

// Delays a random device at every collective by up to 200 microseconds.
BeforeJoining chance_delays(uint32_t seed) {
  return [seed](int64_t device, int64_t number) {
    std::mt19937 random(seed + static_cast<uint32_t>(device * 7919 + number));
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  };
}

void require_same_bits_under_delays(SpmdCase trial, uint32_t seeds) {
  INFO(trial.text());
  const SpmdRun calm = run_spmd(trial);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    const SpmdRun delayed = run_spmd(trial, chance_delays(seed));
    REQUIRE(delayed.losses == calm.losses);
    REQUIRE(delayed.norms == calm.norms);
    REQUIRE(same_bits(delayed.gradients, calm.gradients));
    REQUIRE(same_bits(delayed.trained, calm.trained));
  }
}

TEST_CASE("random delays of devices change no bit of a run") {
  require_same_bits_under_delays({.model = TrialModel::kGpt2,
                                  .ici = {2, 2, 1},
                                  .strategy = "fsdp over replicas",
                                  .dropout = true,
                                  .steps = 3},
                                 2);
}

TEST_CASE("random delays change no bit, on eight devices, with each strategy", "[full]") {
  for (const TrialRules& each : strategies())
    require_same_bits_under_delays({.model = TrialModel::kGpt2,
                                    .ici = {2, 2, 2},
                                    .strategy = each.name,
                                    .repeated = true,
                                    .dropout = true,
                                    .remat = "save_nothing",
                                    .microbatches = 2,
                                    .steps = 20},
                                   4);
}

}  // namespace
}  // namespace tessera
