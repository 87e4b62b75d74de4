// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/metric_means.h"

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

TEST_CASE("a histogram has the mean of each element, and their least, mean and greatest") {
  MetricMeans means;
  means.add_histogram("load", {{6.0, 2.0}, {1.0, 1.0}, {0.0, 0.0}});
  MetricMeans more;
  more.add_histogram("load", {{2.0, 2.0}, {4.0, 4.0}, {0.0, 0.0}});
  means.add(more);
  const std::vector<double> load = means.histograms().at("load");
  REQUIRE(load.size() == 3);
  REQUIRE(load[0] == 2.0);
  REQUIRE(load[1] == 1.0);
  REQUIRE(std::isnan(load[2]));
  const std::map<std::string, double> reported = means.means();
  REQUIRE(reported ==
          std::map<std::string, double>{{"load_max", 2.0}, {"load_mean", 1.5}, {"load_min", 1.0}});
  means.add_histogram("load", {{NAN, 1.0}, {0.0, 0.0}, {0.0, 0.0}});
  REQUIRE(std::isnan(means.means().at("load_min")));
  means.remove("load");
  REQUIRE(means.means().empty());
}

}  // namespace
}  // namespace tessera
