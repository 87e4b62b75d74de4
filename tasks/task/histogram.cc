// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/histogram.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr std::string_view kBinAxis = "bin";
constexpr int kLeastExponent = -21;

double magnitude(size_t i) { return std::ldexp(1.0, kLeastExponent + static_cast<int>(i)); }

Tensor count_true(const Tensor& condition) {
  return reduce_sum(where(condition, constant(1.0, DType::kF32), constant(0.0, DType::kF32)));
}

}  // namespace

// A loop, so that no array has an element for each bin of each weight.
Tensor count_magnitudes(Tensor x) {
  if (x.type().rank() == 0) x = broadcast(x, {{"value", 1, {}}});
  x = as_dtype(reduced(x), DType::kF32);
  const Tensor least = constant(magnitude(0), DType::kF32);
  const RepeatResult beyond = repeat(
      kBinAxis, kMagnitudes, {least}, {},
      [&](Tensor, std::vector<Tensor> bound, std::vector<Tensor>) -> RepeatBody {
        return {{2.0 * bound[0]},
                {count_true(less_equal(bound[0], x)), count_true(less_equal(x, neg(bound[0])))}};
      });
  const Tensor near =
      broadcast(reduced(count_true(less(abs(x), least))), {{std::string(kBinAxis), 1, {}}});
  return concat({reduced(beyond.stacked[0]), reduced(beyond.stacked[1]), near}, kBinAxis);
}

Bins magnitude_bins(std::span<const double> counts) {
  CHECK(counts.size() == kMagnitudeCounts);
  Bins bins;
  const auto add = [&](size_t first, size_t i) {
    bins.counts.push_back(counts[first + i] - (i + 1 < kMagnitudes ? counts[first + i + 1] : 0.0));
  };
  for (size_t i = kMagnitudes; i-- > 0;) {
    bins.edges.push_back(-magnitude(i + 1));
    add(kMagnitudes, i);
  }
  bins.edges.insert(bins.edges.end(), {-magnitude(0), magnitude(0)});
  bins.counts.push_back(counts.back());
  for (size_t i = 0; i < kMagnitudes; ++i) {
    bins.edges.push_back(magnitude(i + 1));
    add(0, i);
  }
  return bins;
}

Bins equal_bins(std::vector<double> values) {
  constexpr size_t kBins = 30;
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return {};
  const auto [least, greatest] = std::ranges::minmax(values);
  const double width = (greatest - least) / static_cast<double>(kBins);
  Bins bins{.edges = {least}, .counts = std::vector<double>(width > 0.0 ? kBins : 1)};
  for (size_t i = 1; i < bins.counts.size(); ++i)
    bins.edges.push_back(least + static_cast<double>(i) * width);
  bins.edges.push_back(greatest);
  for (const double value : values) {
    const auto limit = std::lower_bound(bins.edges.begin() + 1, bins.edges.end(), value);
    bins.counts[static_cast<size_t>(limit - bins.edges.begin() - 1)] += 1.0;
  }
  return bins;
}

}  // namespace tessera
