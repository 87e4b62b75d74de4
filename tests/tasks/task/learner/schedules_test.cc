// SPDX-License-Identifier: Apache-2.0
// Schedules compared with hand-computed numbers.
#include "tasks/task/learner/schedules.h"

#include <cmath>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

double at(const Template<BaseSchedule>& schedule, int64_t step, int64_t num_train_steps = 1000) {
  return schedule.instantiate()->value(step, num_train_steps);
}

TEST_CASE("a constant schedule is constant") {
  REQUIRE(at(ConstantSchedule::HParams{}, 0) == 1.0);
  REQUIRE(at(ConstantSchedule::HParams{.value = 0.25}, 12345) == 0.25);
}

TEST_CASE("every warm-up rises linearly from zero to max at warmup_steps") {
  const std::vector<Template<BaseSchedule>> schedules = {
      LinearRampupCosineDecay::HParams{.warmup_steps = 10, .max = 2.0},
      LinearRampupExponentialDecay::HParams{.warmup_steps = 10, .max = 2.0},
      LinearRampupLinearDecay::HParams{.warmup_steps = 10, .max = 2.0},
      LinearRampupSqrtDecay::HParams{.warmup_steps = 10, .max = 2.0},
      WarmupStableDecay::HParams{.warmup_steps = 10, .max = 2.0}};
  for (const auto& schedule : schedules) {
    INFO(schedule.name());
    REQUIRE(at(schedule, 0) == 0.0);
    REQUIRE(at(schedule, 5) == Approx(1.0));
    REQUIRE(at(schedule, 9) == Approx(1.8));
    REQUIRE(at(schedule, 10) == Approx(2.0));
  }
}

TEST_CASE("cosine decay is halfway at its midpoint and ends at min_ratio") {
  const LinearRampupCosineDecay::HParams p{.warmup_steps = 100, .min_ratio = 0.1};
  REQUIRE(at(p, 550) == Approx(0.55));
  REQUIRE(at(p, 325) == Approx(0.1 + 0.9 * 0.5 * (1.0 + std::sqrt(0.5))));
  REQUIRE(at(p, 1000) == Approx(0.1));
  REQUIRE(at(p, 5000) == Approx(0.1));
}

TEST_CASE("the schedule is constant between the warm-up and decay_start") {
  const LinearRampupLinearDecay::HParams p{
      .warmup_steps = 10, .decay_start = 100, .decay_end = 200, .min_ratio = 0.5};
  REQUIRE(at(p, 60) == 1.0);
  REQUIRE(at(p, 100) == 1.0);
  REQUIRE(at(p, 150) == Approx(0.75));
  REQUIRE(at(p, 200) == Approx(0.5));
  REQUIRE(at(p, 999) == Approx(0.5));
}

TEST_CASE("exponential decay is geometric, as in Pax's c4 schedule") {
  const LinearRampupExponentialDecay::HParams p{
      .warmup_steps = 4000, .decay_start = 4001, .decay_end = 300000, .min_ratio = 0.1};
  REQUIRE(at(p, 2000) == Approx(0.5));
  REQUIRE(at(p, 4001) == 1.0);
  // Halfway through the decay the factor is the geometric mean of 1 and 0.1.
  REQUIRE(at(p, (4001 + 300000) / 2) == Approx(std::sqrt(0.1)).epsilon(1e-5));
  REQUIRE(at(p, 300000) == Approx(0.1));
  REQUIRE(at(p, 400000) == Approx(0.1));
}

TEST_CASE("rsqrt decay falls with the square root of the step and does not end") {
  const LinearRampupSqrtDecay::HParams p{.warmup_steps = 100};
  REQUIRE(at(p, 400) == Approx(0.5));
  REQUIRE(at(p, 10000) == Approx(0.1));
}

TEST_CASE("warmup-stable-decay decays in the last decay_steps of the run") {
  const WarmupStableDecay::HParams p{.warmup_steps = 10, .decay_steps = 200, .min_ratio = 0.2};
  REQUIRE(at(p, 799) == 1.0);
  REQUIRE(at(p, 900) == Approx(0.6));
  REQUIRE(at(p, 1000) == Approx(0.2));
  REQUIRE(at(p, 1900, 2000) == Approx(0.6));
}

TEST_CASE("piecewise values change at their boundaries") {
  const PiecewiseConstant::HParams p{.boundaries = {10, 20}, .values = {1.0, 0.5, 0.1}};
  REQUIRE(at(p, 9) == 1.0);
  REQUIRE(at(p, 10) == 0.5);
  REQUIRE(at(p, 19) == 0.5);
  REQUIRE(at(p, 20) == 0.1);

  const LinearRampupPiecewiseConstant::HParams ramped{.boundaries = {10, 20}, .values = {1.0, 0.1}};
  REQUIRE(at(ramped, 4) == Approx(0.4));
  REQUIRE(at(ramped, 10) == 1.0);
  REQUIRE(at(ramped, 20) == 0.1);
}

TEST_CASE("warmup-stable-decay decays in other ways, too") {
  WarmupStableDecay::HParams p{.decay_steps = 400, .min_ratio = 0.1};
  const auto quarter = [&](Decay decay) {
    p.decay = decay;
    REQUIRE(at(p, 600) == 1.0);
    REQUIRE(at(p, 1000) == Approx(0.1));
    return at(p, 700);
  };
  REQUIRE(quarter(Decay::kLinear) == Approx(0.775));
  REQUIRE(quarter(Decay::kOneMinusSqrt) == Approx(1.0 - 0.9 * 0.5));
  REQUIRE(quarter(Decay::kExponential) == Approx(std::pow(0.1, 0.25)));
  REQUIRE(quarter(Decay::kCosine) == Approx(0.1 + 0.45 * (1.0 + std::sqrt(0.5))));
}

TEST_CASE("every warm-up can begin at a share of max") {
  const std::vector<Template<BaseSchedule>> schedules = {
      LinearRampupCosineDecay::HParams{.warmup_steps = 10, .warmup_start = 0.2, .max = 2.0},
      LinearRampupPolynomialDecay::HParams{.warmup_steps = 10, .warmup_start = 0.2, .max = 2.0},
      LinearRampupPowerDecay::HParams{.warmup_steps = 10, .warmup_start = 0.2, .max = 2.0},
      CosineCycles::HParams{.warmup_steps = 10, .warmup_start = 0.2, .max = 2.0},
      WarmupStableDecay::HParams{.warmup_steps = 10, .warmup_start = 0.2, .max = 2.0}};
  for (const auto& schedule : schedules) {
    INFO(schedule.name());
    REQUIRE(at(schedule, 0) == Approx(0.4));
    REQUIRE(at(schedule, 5) == Approx(1.2));
    REQUIRE(at(schedule, 10) == Approx(2.0));
    REQUIRE(schedule.instantiate()->warmup_steps() == 10);
  }
}

TEST_CASE("polynomial decay") {
  const LinearRampupPolynomialDecay::HParams p{
      .warmup_steps = 100, .power = 3.0, .min_ratio = 0.2, .max = 2.0};
  REQUIRE(at(p, 550) == Approx(2.0 * (0.2 + 0.8 * 0.125)));
  REQUIRE(at(p, 1000) == Approx(0.4));
  REQUIRE(at(LinearRampupPolynomialDecay::HParams{.decay_end = 400, .power = 1.0}, 100) == 0.75);
  REQUIRE_THROWS_WITH(
      at(LinearRampupPolynomialDecay::HParams{.warmup_steps = 9, .decay_end = 8}, 0),
      Catch::Contains("decay_end=8 is before the start of the decay, step 9"));
}

TEST_CASE("power decay begins at decay_start and does not end") {
  const LinearRampupPowerDecay::HParams p{
      .warmup_steps = 10, .decay_start = 100, .exponent = 0.25, .max = 3.0};
  REQUIRE(at(p, 99) == 3.0);
  REQUIRE(at(p, 1600) == Approx(1.5));
  const LinearRampupPowerDecay::HParams root{.warmup_steps = 100};
  for (const int64_t step : {3, 100, 999})
    REQUIRE(at(root, step) ==
            Approx(at(LinearRampupSqrtDecay::HParams{.warmup_steps = 100}, step)));
  REQUIRE_THROWS_WITH(at(LinearRampupPowerDecay::HParams{.warmup_steps = 10, .decay_start = 5}, 0),
                      Catch::Contains("decay_start=5 is before the end of the warm-up"));
}

TEST_CASE("cosine cycles begin again, longer and lower") {
  const CosineCycles::HParams equal{.warmup_steps = 10, .cycle_steps = 100, .min_ratio = 0.5};
  REQUIRE(at(equal, 10) == 1.0);
  REQUIRE(at(equal, 60) == Approx(0.75));
  REQUIRE(at(equal, 110) == 1.0);
  REQUIRE(at(equal, 1'000'000'060) == Approx(0.75));
  const CosineCycles::HParams longer{.cycle_steps = 100, .growth = 2.0, .peak_ratio = 0.5};
  REQUIRE(at(longer, 50) == Approx(0.5));
  REQUIRE(at(longer, 100) == Approx(0.5));
  REQUIRE(at(longer, 200) == Approx(0.25));  // Half of the second cycle, of 200 steps.
  REQUIRE(at(longer, 300) == Approx(0.25));
}

TEST_CASE("a schedule of schedules: each counts its own steps and ends at the next boundary") {
  const PiecewiseSchedule::HParams p{
      .boundaries = {100, 400},
      .schedules_tpl = {LinearRampupLinearDecay::HParams{.warmup_steps = 50, .min_ratio = 0.5},
                        ConstantSchedule::HParams{.value = 0.25},
                        LinearRampupLinearDecay::HParams{.max = 0.25}}};
  REQUIRE(at(p, 25) == Approx(0.5));
  REQUIRE(at(p, 75) == Approx(0.75));
  REQUIRE(at(p, 99) > 0.5);
  REQUIRE(at(p, 100) == 0.25);
  REQUIRE(at(p, 400) == 0.25);
  REQUIRE(at(p, 700) == Approx(0.125));
  REQUIRE(at(p, 1000) == Approx(0.0));
  REQUIRE(Template<BaseSchedule>(p).instantiate()->warmup_steps() == 50);
}

TEST_CASE("a schedule says where its decay ends if its configuration does") {
  const auto end = [](const Template<BaseSchedule>& p) { return p.instantiate()->decay_end(); };
  REQUIRE(end(LinearRampupCosineDecay::HParams{}) == -1);
  REQUIRE(end(LinearRampupCosineDecay::HParams{.decay_end = 70}) == 70);
  REQUIRE(end(WarmupStableDecay::HParams{.decay_end = 70}) == 70);
  REQUIRE(end(ConstantSchedule::HParams{}) == -1);
  const Template<BaseSchedule> last = LinearRampupLinearDecay::HParams{.decay_end = 70};
  REQUIRE(end(PiecewiseSchedule::HParams{
              .boundaries = {30}, .schedules_tpl = {ConstantSchedule::HParams{}, last}}) == 100);
}

TEST_CASE("negative and non-finite schedule values are rejected") {
  REQUIRE_THROWS_WITH(at(ConstantSchedule::HParams{.value = -0.5}, 0),
                      Catch::Contains("ConstantSchedule: value is -0.5, expected at least 0"));
  REQUIRE_THROWS_WITH(at(LinearRampupCosineDecay::HParams{.max = std::nan("")}, 0),
                      Catch::Contains("max is nan, expected a finite number"));
  REQUIRE_THROWS_WITH(at(LinearRampupLinearDecay::HParams{.min_ratio = -0.1}, 0),
                      Catch::Contains("min_ratio is -0.1, expected 0 to 1"));
  REQUIRE_THROWS_WITH(at(LinearRampupExponentialDecay::HParams{.max = -1.0}, 0),
                      Catch::Contains("max is -1"));
  REQUIRE_THROWS_WITH(at(LinearRampupSqrtDecay::HParams{.max = -1.0}, 0),
                      Catch::Contains("max is -1"));
  REQUIRE_THROWS_WITH(at(WarmupStableDecay::HParams{.min_ratio = std::nan("")}, 0),
                      Catch::Contains("min_ratio is nan"));
  REQUIRE_THROWS_WITH(at(PiecewiseConstant::HParams{.values = {-1.0}}, 0),
                      Catch::Contains("values[0] is -1"));
  REQUIRE_THROWS_WITH(at(LinearRampupPiecewiseConstant::HParams{.values = {1e39}}, 0),
                      Catch::Contains("expected a finite number (at most 3.4e38)"));
}

TEST_CASE("inconsistent schedule settings are rejected") {
  REQUIRE_THROWS_WITH(at(LinearRampupCosineDecay::HParams{.warmup_steps = 10, .decay_start = 5}, 0),
                      Catch::Contains("decay_start=5 is before the end of the warm-up"));
  REQUIRE_THROWS_WITH(at(LinearRampupLinearDecay::HParams{.warmup_steps = 10, .decay_end = 5}, 0),
                      Catch::Contains("decay_end=5 is before the start of the decay"));
  REQUIRE_THROWS_WITH(at(LinearRampupExponentialDecay::HParams{.min_ratio = 0.0}, 0),
                      Catch::Contains("an exponential never reaches zero"));
  REQUIRE_THROWS_WITH(at(PiecewiseConstant::HParams{.boundaries = {1, 2}, .values = {1.0}}, 0),
                      Catch::Contains("2 boundaries need 3 values, got 1"));
  REQUIRE_THROWS_WITH(
      at(PiecewiseConstant::HParams{.boundaries = {2, 2}, .values = {1.0, 2.0, 3.0}}, 0),
      Catch::Contains("boundaries must increase, but 2 is before 2"));
  const Template<BaseSchedule> constant = ConstantSchedule::HParams{};
  REQUIRE_THROWS_WITH(
      at(PiecewiseSchedule::HParams{.boundaries = {5}, .schedules_tpl = {constant}}, 0),
      Catch::Contains("1 boundaries need 2 schedules, got 1"));
  REQUIRE_THROWS_WITH(
      at(PiecewiseSchedule::HParams{.boundaries = {5, 3},
                                    .schedules_tpl = {constant, constant, constant}},
         0),
      Catch::Contains("boundaries must increase, but 5 is before 3"));
  REQUIRE_THROWS_WITH(
      at(PiecewiseSchedule::HParams{.boundaries = {0}, .schedules_tpl = {constant, constant}}, 0),
      Catch::Contains("boundaries[0] is 0, expected at least 1"));
  REQUIRE_THROWS_WITH(at(WarmupStableDecay::HParams{.decay = Decay::kExponential}, 0),
                      Catch::Contains("an exponential never reaches zero"));
  REQUIRE_THROWS_WITH(at(CosineCycles::HParams{.cycle_steps = 0}, 0),
                      Catch::Contains("cycle_steps is 0, expected at least 1"));
}

}  // namespace
}  // namespace tessera
