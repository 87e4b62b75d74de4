// SPDX-License-Identifier: Apache-2.0
// Values by step, thinned as they arrive.
#include <limits>

#include "core/io/json.h"
#include "tasks/run/report/metrics_log.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a short series has each value as it is") {
  Series series;
  series.add(1, 5.5);
  series.add(2, kNan);
  series.add(4, 0.25);
  REQUIRE(series.json() == R"({"s": [1,2,4], "m": [5.5,null,0.25]})");
}

TEST_CASE("a value of an earlier step is ignored") {
  Series series;
  series.add(5, 1.0);
  series.add(3, 2.0);
  REQUIRE(series.json() == R"({"s": [5], "m": [1]})");
}

TEST_CASE("a long series keeps means, extremes and all steps in bounded memory") {
  constexpr int64_t kSteps = 1'000'000;
  Series series;
  for (int64_t step = 1; step <= kSteps; ++step)
    series.add(step, step == 777'777 ? 1e6 : step == 5 ? kNan : 2.0);
  REQUIRE(series.points().size() <= Series::kMostPoints);
  REQUIRE(series.points().size() >= Series::kMostPoints / 2);
  REQUIRE(series.points().front().first == 1);
  REQUIRE(series.points().back().last == kSteps);
  int64_t count = 0, next = 1;
  double highest = 0.0;
  for (const SeriesPoint& point : series.points()) {
    REQUIRE(point.first == next);
    REQUIRE(point.low == 2.0);
    next = point.last + 1;
    count += point.count;
    highest = std::max(highest, point.high);
  }
  REQUIRE(count == kSteps - 1);  // All but the one that is not finite.
  REQUIRE(highest == 1e6);
  const Json json = parse_json(series.json(), "series");
  REQUIRE(json.at("h").as_array().size() == series.points().size());
}

}  // namespace
}  // namespace tessera
