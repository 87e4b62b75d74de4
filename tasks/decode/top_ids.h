// SPDX-License-Identifier: Apache-2.0
// The best of many scores, without sorting them all.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera {

// The score of an id that is not to be had.
inline constexpr float kNeverScore = -std::numeric_limits<float>::infinity();

// Whether id a comes before id b: it scores better, or as well and is smaller.
inline bool scores_before(std::span<const float> scores, int32_t a, int32_t b) {
  const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
  return x > y || (x == y && a < b);
}

// The k best ids in that order, or fewer if no more are to be had.
void top_ids(std::span<const float> scores, int64_t k, std::vector<int32_t>* ids);

}  // namespace tessera
