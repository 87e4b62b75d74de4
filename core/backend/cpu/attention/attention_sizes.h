// SPDX-License-Identifier: Apache-2.0
// How attention is cut up, and how much scratch memory its loops need for it.
#pragma once

#include <cstdint>

#include "core/backend/cpu/attention/attention_kernels.h"

namespace tessera {

inline constexpr int64_t kQueryBlock = 64;  // A multiple of every vector's lanes.
inline constexpr int64_t kKeyBlock = 256;

// Widths are padded to 16 floats in scratch memory: whole vectors of every target.
inline int64_t padded_width(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Hands out parts of one piece of scratch memory.
class ScratchCutter {
 public:
  explicit ScratchCutter(float* memory) : next_(memory) {}
  float* take(int64_t floats) {
    float* part = next_;
    next_ += padded_width(floats);
    return part;
  }

 private:
  float* next_;
};

}  // namespace tessera
