// SPDX-License-Identifier: Apache-2.0
// What a launch costs.
#pragma once

#include <cstdint>

namespace tessera {

// Sizes and counts enter prices as floating point numbers.
inline double to_double(int64_t number) { return static_cast<double>(number); }

// What a launch waits for most.
enum class Limit { kProducts, kArithmetic, kMemory, kLinks, kLaunch };

struct LaunchCost {
  double seconds = 0.0;   // With the gap before the next launch.
  double copies = 0.0;    // The part of it that copies operands or results of a product.
  double flops = 0.0;     // Executed; of contractions: of their matrix products.
  double bytes = 0.0;     // Moved in memory; of collectives: sent.
  double switched = 0.0;  // The part of it that is saved where the switch adds (DeviceLink).
  Limit limit = Limit::kMemory;
};

}  // namespace tessera
