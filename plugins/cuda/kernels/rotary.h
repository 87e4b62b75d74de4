// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in rotary.cu.
#pragma once

#include <cstdint>

namespace tessera::cuda {

inline constexpr int kRotaryThreads = 256;
inline constexpr int kRotaryTable = 2048;  // Cosines and sines of a block, in shared memory.
inline constexpr int kRotaryPairs = 1024;  // The most pairs of a row that a block rotates.
inline constexpr int kRotaryGroups = 256;  // The most positions of a block.
inline constexpr int kRotaryRows = 64;     // Rows of one position in a block; more for huge groups.
inline constexpr int kRotaryAxes = 8;
inline constexpr int kRotaryDivisors = 256;  // The most pairs with a divisor each.

// x is rows of 2·pairs elements. A group is `repeat` adjacent rows with one position: the heads of
// a token. Blocks: x along groups, y along pairs, z along the rows of a group.
struct RotaryParameters {
  const void* x;
  void* y;  // May be x.
  const int32_t* positions;
  int64_t groups, repeat, rows_of_block, pairs;
  int groups_of_block;
  bool interleaved, inverse, stretched;

  // The axes of the groups, innermost first: sizes, and strides in the positions.
  int num_axes;
  int64_t size[kRotaryAxes], step[kRotaryAxes];

  // Pair i turns first·ratio^i times around the circle in one position. Where stretched: what turns
  // t times in `length` positions keeps the share (t + i·index_step - low)·inverse_span, in [0, 1],
  // of its frequency; the rest of it is multiplied by `slowed`.
  double first, ratio, length, index_step, low, inverse_span, slowed;
  bool has_divisors;  // What the turns of each pair are then divided by.
  double divisors[kRotaryDivisors];
};

}  // namespace tessera::cuda
