// SPDX-License-Identifier: Apache-2.0
// Rows of random numbers of one stream (core/base/random.h), fast: what initial weights are made
// of. Element i depends on the key and i alone, wherever a row begins, and has the same bits on
// every machine: only IEEE additions, multiplications, divisions and roots are used.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// Equal rows of a stream: elements first … first + length - 1, the same from first + stride on, and
// so forth. A block of an array that is one stream is such rows.
struct StreamRows {
  int64_t first = 0;
  int64_t length = 1;
  int64_t stride = 0;
};

// Rows of the stream, one after another, until `out` is full, which holds whole rows.
void draw_uniform(uint64_t key, const StreamRows& rows, std::span<float> out);  // In [0, 1).
void draw_normal(uint64_t key, const StreamRows& rows, std::span<float> out);   // N(0, 1).
void draw_truncated_normal(uint64_t key, const StreamRows& rows,
                           std::span<float> out);  // Within ±2.

}  // namespace tessera
