// SPDX-License-Identifier: Apache-2.0
// Runs of random numbers of one stream (core/base/random.h), fast: what initial weights are made
// of. Element i depends on the key and i alone, wherever a run begins, and has the same bits on
// every machine: only IEEE additions, multiplications, divisions and roots are used.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// Elements first, first + 1, … of the stream; `first` is a multiple of 4.
void draw_uniform(uint64_t key, int64_t first, std::span<float> out);           // In [0, 1).
void draw_normal(uint64_t key, int64_t first, std::span<float> out);            // N(0, 1).
void draw_truncated_normal(uint64_t key, int64_t first, std::span<float> out);  // Within ±2.

}  // namespace tessera
