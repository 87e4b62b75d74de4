// SPDX-License-Identifier: Apache-2.0
// The values of one metric by step, thinned so that a run of any length takes bounded memory and
// draws in bounded time. Neighbours are merged as values arrive, so a longer run is never read
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Consecutive values that are drawn as one point.
struct SeriesPoint {
  int64_t first = 0, last = 0;  // Steps.
  double sum = 0.0;             // Sum of the finite values, `count` of them.
  double low = 0.0, high = 0.0;
  int64_t count = 0;
};

class Series {
 public:
  // A screen is not wider; between half as many and as many are kept.
  static constexpr size_t kMostPoints = 1024;

  // Steps must not decrease: a value of an earlier step than the last is ignored. A value that is
  // not finite takes part in no mean; a point of such values alone is a gap.
  void add(int64_t step, double value);
  const std::vector<SeriesPoint>& points() const { return points_; }

  // {"s": [steps], "m": [means]}, and with merged values {"l": [least], "h": [most]}. Six digits;
  // null for a gap.
  std::string json() const;

 private:
  std::vector<SeriesPoint> points_;
  int64_t values_per_point_ = 1;  // In each point except the last, which may have fewer.
  int64_t values_in_last_ = 0;
};

}  // namespace tessera
