// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/product_price.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace tessera {
namespace {

// Kernels read more than their operands (halves of cache lines, partial sums): an estimate.
constexpr double kTraffic = 1.1;

double rounds_of(int64_t a, int64_t b) { return to_double((a + b - 1) / b); }

// The efficiency of matrix products by shape is that of NVIDIA's library nvMatmulHeuristics
// 0.1.0.27 (H200 SXM, bf16, CUTLASS 3 kernels), relative to its 8192×8192×8192, for which it
// predicts 978 TFLOP/s. This model of tiles agrees with it within 3 % on average and 15 % at most
// on the products of GPT-2 124M and 1558M and of Llamas of 350M to 2B. A tile takes as long as its
// sums and, for its begin and end, ProductTiles::start more of them.
struct Tile {
  int64_t m = 0, n = 0;
  double slowdown = 1.0;
};
constexpr Tile kTiles[] = {{128, 256}, {256, 128}, {128, 128, 1.1}};
constexpr double kStoresOfF32 = 2.5;  // A tile of f32 sums takes longer to store.
// Sums may be divided among multiprocessors (split-K) where there are few tiles.
constexpr int64_t kMostSplits = 32, kLeastSums = 512;

// The time of a product in multiplications of one multiprocessor.
double tile_work(const ProductSize& product, const Hardware& hardware) {
  // Slower or faster sums, but the same time to begin and end.
  double start =
      hardware.tiles->start * (peak_flops(product, hardware) / hardware.peak_flops(DType::kBF16));
  if (product.output != DType::kBF16) start *= kStoresOfF32;
  double least = 0.0;
  for (const Tile& tile : kTiles) {
    const double tiles =
        rounds_of(product.m, tile.m) * rounds_of(product.n, tile.n) * to_double(product.batches);
    for (int64_t splits = 1; splits <= kMostSplits; splits *= 2) {
      const int64_t sums = product.k / splits;
      if (splits > 1 && sums < kLeastSums) break;
      const double rounds =
          rounds_of(static_cast<int64_t>(tiles) * splits, hardware.multiprocessors->count);
      const double work =
          rounds * to_double(tile.m * tile.n) * tile.slowdown * (to_double(sums) + start);
      if (least == 0.0 || work < least) least = work;
    }
  }
  return least;
}

// The square of log2(a / b).
double squared_doublings(int64_t a, int64_t b) {
  const double logarithm =
      std::log2(to_double(std::max<int64_t>(1, a)) / to_double(std::max<int64_t>(1, b)));
  return logarithm * logarithm;
}

}  // namespace

double ProductSize::flops() const {
  return 2.0 * to_double(m) * to_double(n) * to_double(k) * to_double(batches);
}

double peak_flops(const ProductSize& product, const Hardware& hardware) {
  const double peak = hardware.peak_flops(product.input);
  return product.fp8 ? fp8_peak(hardware).value_or(peak) : peak;
}

double reachable_flops(DType dtype, const Hardware& hardware) {
  return hardware.efficiency.products * hardware.peak_flops(dtype);
}

double share_on_curve(const ProductSize& product, const ProductCurve& curve) {
  double weights = 0.0, logarithms = 0.0;
  for (const ProductPoint& point : curve.points(product.input)) {
    const double squared = squared_doublings(product.m, point.m) +
                           squared_doublings(product.n, point.n) +
                           squared_doublings(product.k, point.k);
    if (squared == 0.0) return point.share;
    const double weight = 1.0 / (squared * squared);
    weights += weight;
    logarithms += weight * std::log(point.share);
  }
  return std::exp(logarithms / weights);
}

double product_seconds(const ProductSize& product, const Hardware& hardware) {
  if (hardware.products) {
    const double share = share_on_curve(product, *hardware.products);
    return product.flops() / (share * peak_flops(product, hardware));
  }
  const double reachable = hardware.efficiency.products * peak_flops(product, hardware);
  const double at_best = product.flops() / reachable;
  if (!hardware.tiles) return at_best;
  const ProductSize large{8192, 8192, 8192, 1, product.input, DType::kBF16, product.fp8};
  const double of_large = large.flops() / reachable;
  return std::max(at_best, of_large * tile_work(product, hardware) / tile_work(large, hardware));
}

double reachable_bandwidth(const Hardware& hardware) {
  return hardware.efficiency.copies / kTraffic * hardware.memory.bandwidth;
}
double reachable_bandwidth(const Hardware& hardware, double bytes) {
  if (!hardware.memory.copies) return reachable_bandwidth(hardware);
  // Measured with kernels, so that their traffic is part of it.
  const std::vector<CopyPoint>& curve = *hardware.memory.copies;
  const auto after = std::ranges::find_if(
      curve, [&](const CopyPoint& point) { return to_double(point.bytes) >= bytes; });
  if (after == curve.begin()) return curve.front().bandwidth;
  if (after == curve.end()) return curve.back().bandwidth;
  const CopyPoint &low = *std::prev(after), &high = *after;
  const double part = std::log(bytes / to_double(low.bytes)) /
                      std::log(to_double(high.bytes) / to_double(low.bytes));
  return low.bandwidth * std::pow(high.bandwidth / low.bandwidth, part);
}

}  // namespace tessera
