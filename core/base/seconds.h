// SPDX-License-Identifier: Apache-2.0
// Converts times of the steady clock to seconds.
#pragma once

#include <chrono>

namespace tessera {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline std::chrono::steady_clock::time_point in_seconds(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace tessera
