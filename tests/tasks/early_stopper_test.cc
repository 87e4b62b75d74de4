// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tasks/train/loop_state.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const std::string kMetric = "eval/validation/log_pplx";

TEST_CASE("without a metric a run is never stopped early") {
  EarlyStopper stopper({});
  REQUIRE(stopper.observe({{kMetric, 1.0}}).empty());
}

TEST_CASE("a run stops once its metric has not improved for patience_evals evaluations") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 2, .min_improvement = 0.1});
  REQUIRE(stopper.observe({{kMetric, 3.0}}).empty());
  REQUIRE(stopper.observe({{kMetric, 2.0}}).empty());
  REQUIRE(stopper.observe({{kMetric, 1.95}}).empty());  // Improved by less than min_improvement.
  REQUIRE_THAT(stopper.observe({{kMetric, 1.92}}),
               Catch::Contains("has not improved on 2.0000 for 2 evaluations"));
}

TEST_CASE("an improvement resets the count") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 2});
  for (const double value : {3.0, 3.1, 2.9, 3.0})
    REQUIRE(stopper.observe({{kMetric, value}}).empty());
  REQUIRE_FALSE(stopper.observe({{kMetric, 2.95}}).empty());
}

TEST_CASE("a run stops when the metric reaches its target") {
  EarlyStopper stopper({.metric = kMetric, .target = 1.5, .stop_at_target = true});
  REQUIRE(stopper.observe({{kMetric, 1.6}}).empty());
  REQUIRE_THAT(stopper.observe({{kMetric, 1.5}}), Catch::Contains("reached the target 1.5"));
}

TEST_CASE("a restored stopper makes the same decision as an uninterrupted one") {
  const EarlyStopping p{.metric = kMetric, .patience_evals = 2};
  EarlyStopper first(p);
  first.observe({{kMetric, 1.0}});
  first.observe({{kMetric, 2.0}});
  EarlyStopper second(p);
  second.restore(first.state());
  REQUIRE_FALSE(second.observe({{kMetric, 2.0}}).empty());
}

TEST_CASE("a NaN metric never counts as an improvement") {
  EarlyStopper stopper({.metric = kMetric, .patience_evals = 1});
  REQUIRE_FALSE(stopper.observe({{kMetric, std::nan("")}}).empty());
}

}  // namespace
}  // namespace tessera
