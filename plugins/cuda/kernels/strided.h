// SPDX-License-Identifier: Apache-2.0
// Loops over strided arrays, as kernels take them: any number of elements, up to 16 dimensions.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::cuda {

// Division by a number that is fixed for a launch, as a multiplication: quotient = (high half of
// dividend * multiplier + dividend) >> shift (Granlund and Montgomery, 1994). In 32 bits for
// dividends below 2^31, in 64 bits for those below 2^63.
struct Divider {
  uint64_t divisor = 1;
  uint64_t wide_multiplier = 1;
  uint32_t multiplier = 1;
  uint16_t shift = 0, wide_shift = 0;
};

constexpr Divider make_divider(uint64_t divisor) {
  __extension__ using Wide = unsigned __int128;
  const auto shift = static_cast<int>(std::bit_width(divisor - 1));
  const uint64_t excess = (uint64_t{1} << shift) - divisor;
  Divider result{.divisor = divisor, .wide_multiplier = 1, .multiplier = 0, .shift = 31};
  result.wide_multiplier += static_cast<uint64_t>((Wide{excess} << 64) / divisor);
  result.wide_shift = static_cast<uint16_t>(shift);
  if (shift > 31) return result;  // Dividends below 2^31 give 0.
  result.multiplier = static_cast<uint32_t>((excess << 32) / divisor + 1);
  result.shift = result.wide_shift;
  return result;
}

inline constexpr int kMostRank = 16;

// A row-major index -> an offset in each operand.
template <int operands>
struct StridedSpace {
  int rank = 0;
  Divider sizes[kMostRank];  // Outermost first.
  int64_t strides[operands][kMostRank] = {};
};

// Parameters of copy_strided_… in data_movement.cu, in units of 1 to 16 bytes: from operand 0 of
// the space to operand 1.
struct StridedCopy {
  const void* from;
  void* to;
  int64_t units;
  StridedSpace<2> space;
};

}  // namespace tessera::cuda
