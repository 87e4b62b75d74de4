// SPDX-License-Identifier: Apache-2.0
// Written so that the compiler vectorises it: lanes side by side in plain loops, no branches, no
// library calls. Compiled without fused multiply-add, which would round differently.
#include "core/base/draws.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/base/error.h"
#include "core/base/normal.h"
#include "core/base/random.h"

namespace tessera {
namespace {

constexpr int64_t kBlocks = 64;  // Philox blocks worked on side by side.
using Lane = std::array<uint32_t, kBlocks>;

// The blocks of counters first, first + 1, …: word w of block b is words[w][b]. As philox() does,
// one round after another over all lanes.
void philox_lanes(uint64_t key, uint64_t first, std::array<Lane, 4>& words) {
  for (int64_t b = 0; b < kBlocks; ++b) {
    const uint64_t counter = first + static_cast<uint64_t>(b);
    words[0][static_cast<size_t>(b)] = static_cast<uint32_t>(counter);
    words[1][static_cast<size_t>(b)] = static_cast<uint32_t>(counter >> 32);
    words[2][static_cast<size_t>(b)] = words[3][static_cast<size_t>(b)] = 0;
  }
  PhiloxRounds round(key);
  for (int i = 0; i < PhiloxRounds::kCount; ++i, round.advance()) {
    for (size_t b = 0; b < kBlocks; ++b)
      round.apply(words[0][b], words[1][b], words[2][b], words[3][b]);
  }
}

// Calls make(words, values) for runs of blocks, and stores what it makes of them.
template <typename Make>
void draw(uint64_t key, int64_t first, std::span<float> out, Make make) {
  CHECK(first % 4 == 0, "a run of draws begins at element {}", first);
  std::array<Lane, 4> words;
  std::array<std::array<float, kBlocks>, 4> values;
  const int64_t count = static_cast<int64_t>(out.size());
  for (int64_t done = 0; done < count; done += 4 * kBlocks) {
    philox_lanes(key, static_cast<uint64_t>((first + done) / 4), words);
    make(words, values);
    const int64_t run = std::min(count - done, 4 * kBlocks);
    for (int64_t i = 0; i < run; ++i)
      out[static_cast<size_t>(done + i)] =
          values[static_cast<size_t>(i % 4)][static_cast<size_t>(i / 4)];
  }
}

// The inverse of erf on |x| <= erf(√2), to 1e-6 (Giles, "Approximating the erfinv function", 2012,
// the central branch).
inline float inverse_erf(float x) {
  const float w = -natural_log((1.0f - x) * (1.0f + x)) - 2.5f;
  float p = 2.81022636e-08f;
  p = 3.43273939e-07f + p * w;
  p = -3.5233877e-06f + p * w;
  p = -4.39150654e-06f + p * w;
  p = 0.00021858087f + p * w;
  p = -0.00125372503f + p * w;
  p = -0.00417768164f + p * w;
  p = 0.246640727f + p * w;
  p = 1.50140941f + p * w;
  return p * x;
}

}  // namespace

void draw_uniform(uint64_t key, int64_t first, std::span<float> out) {
  draw(key, first, out, [](const auto& words, auto& values) {
    for (size_t word = 0; word < 4; ++word) {
      for (size_t b = 0; b < kBlocks; ++b) values[word][b] = uniform_from_bits(words[word][b]);
    }
  });
}

void draw_normal(uint64_t key, int64_t first, std::span<float> out) {
  draw(key, first, out, [](const auto& words, auto& values) {
    for (size_t pair = 0; pair < 4; pair += 2) {
      for (size_t b = 0; b < kBlocks; ++b) {
        const NormalPair normals = box_muller(words[pair][b], words[pair + 1][b]);
        values[pair][b] = normals.first;
        values[pair + 1][b] = normals.second;
      }
    }
  });
}

void draw_truncated_normal(uint64_t key, int64_t first, std::span<float> out) {
  constexpr float kRootTwo = 1.41421356f;
  constexpr float kErfOfRootTwo = 0.954499736f;
  draw(key, first, out, [](const auto& words, auto& values) {
    for (size_t word = 0; word < 4; ++word) {
      for (size_t b = 0; b < kBlocks; ++b) {
        // The middle of each of 2^24 equal slices of probability.
        const float centred = (uniform_from_bits(words[word][b]) - 0.5f) * 2.0f + 0x1p-24f;
        values[word][b] = kRootTwo * inverse_erf(centred * kErfOfRootTwo);
      }
    }
  });
}

}  // namespace tessera
