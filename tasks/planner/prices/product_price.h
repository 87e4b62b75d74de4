// SPDX-License-Identifier: Apache-2.0
// The time of a matrix product by its shape: from a GPU's tiles, from a measured curve of
// efficiency, or at the same share of the peak for all shapes, as the hardware file says. And the
// bandwidth that kernels reach.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

// Sizes and counts enter prices as floating point numbers.
inline double to_double(int64_t number) { return static_cast<double>(number); }

// The size of a matrix product, batches × (m×k · k×n).
struct ProductSize {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  DType input = DType::kBF16, output = DType::kBF16;
  bool fp8 = false;  // Operands are rounded to 8 bits, for a device that multiplies those.

  double flops() const;
};
double peak_flops(const ProductSize& product, const Hardware& hardware);
double product_seconds(const ProductSize& product, const Hardware& hardware);

// FLOP/s that products of large matrices reach.
double reachable_flops(DType dtype, const Hardware& hardware);

// The share of the peak at a shape: that of a point of the curve; elsewhere the geometric mean of
// all points, weighted by the inverse fourth power of their distance (Shepard, 1968) in the
// logarithms of m, n and k.
double share_on_curve(const ProductSize& product, const ProductCurve& curve);

// Bandwidth in bytes per second that kernels reach if memory limits them: with large operands, and
// with operands and results of so many bytes, by the measured curve of copies if there is one.
double reachable_bandwidth(const Hardware& hardware);
double reachable_bandwidth(const Hardware& hardware, double bytes);

}  // namespace tessera
