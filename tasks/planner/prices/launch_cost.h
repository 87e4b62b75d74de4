// SPDX-License-Identifier: Apache-2.0
// What a launch costs.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

// Sizes and counts enter prices as floating point numbers.
inline double to_double(int64_t number) { return static_cast<double>(number); }

// What a launch waits for most.
enum class Limit { kProducts, kArithmetic, kMemory, kLinks, kLaunch };

struct LaunchCost {
  double seconds = 0.0;      // With the gap before the next launch.
  double copies = 0.0;       // The part of it that copies operands or results of a product.
  double flops = 0.0;        // Executed; for contractions those of their matrix products.
  double bytes = 0.0;        // Moved in memory; for collectives, sent.
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
  Limit limit = Limit::kMemory;
  std::string_view kernels;  // For attention, whose kernels were priced: "own"; else empty.
};

}  // namespace tessera
