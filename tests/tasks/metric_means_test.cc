// SPDX-License-Identifier: Apache-2.0
#include "tasks/metric_means.h"

#include <cmath>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("batches are weighted by their labels, and padding has no weight") {
  MetricMeans means;
  means.add("loss", 30.0, 10.0);  // Mean 3 of ten tokens.
  means.add("loss", 2.0, 2.0);    // Mean 1 of two: a short last batch.
  means.add("loss", 0.0, 0.0);    // Only padding.
  REQUIRE(means.means().at("loss") == Approx(32.0 / 12.0));
  REQUIRE(means.weight("loss") == 12.0);
  REQUIRE(means.weight("accuracy") == 0.0);
}

TEST_CASE("the mean of no labels is NaN") {
  MetricMeans means;
  means.add("accuracy", 0.0, 0.0);
  REQUIRE(std::isnan(means.means().at("accuracy")));
}

}  // namespace
}  // namespace tessera
