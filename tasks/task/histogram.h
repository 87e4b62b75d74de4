// SPDX-License-Identifier: Apache-2.0
// Histograms: of values on the host, and of weights and gradients in a training step. The bins of
// the latter are fixed, powers of two of either sign, so the counts of equal values are the same on
// every mesh; above 2^24 elements only up to rounding in f32.
#pragma once

#include <span>
#include <vector>

#include "core/graph/trace.h"

namespace tessera {

struct Bins {
  std::vector<double> edges;   // Ascending.
  std::vector<double> counts;  // [i]: of the elements between edges[i] and edges[i + 1].
};

// Thirty bins of equal width over the finite values, or one if they are equal; none without any.
Bins equal_bins(std::vector<double> values);

// Traces f32["bin"]: for each magnitude, the elements at least as large, then those at most its
// negative; last, those nearer to zero than the least magnitude. NaNs are in none of them.
Tensor count_magnitudes(Tensor x);
inline constexpr size_t kMagnitudes = 31, kMagnitudeCounts = 2 * kMagnitudes + 1;
// The first and the last of these bins also have what lies beyond.
Bins magnitude_bins(std::span<const double> counts);

}  // namespace tessera
