// SPDX-License-Identifier: Apache-2.0
// Written so that the compiler vectorises it: lanes side by side in plain loops, no branches, no
// library calls. Compiled without fused multiply-add, which would round differently.
#include "core/base/draws.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/normal.h"
#include "core/base/random.h"

namespace tessera {
namespace {

constexpr int64_t kBlocks = 64;  // Philox blocks worked on side by side.
using Lane = std::array<uint32_t, kBlocks>;

// The blocks of these counters: word w of lane b is words[w][b]. As philox() does, one round after
// another over all lanes.
void philox_lanes(uint64_t key, const std::array<uint64_t, kBlocks>& counters,
                  std::array<Lane, 4>& words) {
  for (size_t b = 0; b < kBlocks; ++b) {
    words[0][b] = static_cast<uint32_t>(counters[b]);
    words[1][b] = static_cast<uint32_t>(counters[b] >> 32);
    words[2][b] = words[3][b] = 0;
  }
  PhiloxRounds round(key);
  for (int i = 0; i < PhiloxRounds::kCount; ++i, round.advance()) {
    for (size_t b = 0; b < kBlocks; ++b)
      round.apply(words[0][b], words[1][b], words[2][b], words[3][b]);
  }
}

// Lanes that hold consecutive blocks of one row.
struct Stretch {
  int64_t lane = 0;     // The first of them.
  int64_t skipped = 0;  // Elements of that lane which come before the row.
  int64_t count = 0;    // Elements of the row.
};

using Values = std::array<std::array<float, kBlocks>, 4>;

void store(const Values& values, const Stretch& stretch, float* out) {
  const int64_t from = 4 * stretch.lane + stretch.skipped;
  for (int64_t i = 0; i < stretch.count; ++i)
    out[i] = values[static_cast<size_t>((from + i) % 4)][static_cast<size_t>((from + i) / 4)];
}

// Calls make(words, values) for lanes filled with as many rows as they hold, and stores what it
// makes of them.
template <typename Make>
void draw(uint64_t key, const StreamRows& rows, std::span<float> out, Make make) {
  const int64_t count = static_cast<int64_t>(out.size());
  CHECK(rows.first >= 0 && rows.length > 0 && count % rows.length == 0, "rows of {} in {} elements",
        rows.length, count);
  std::array<uint64_t, kBlocks> counters{};
  std::array<Lane, 4> words;
  Values values;
  std::vector<Stretch> stretches;
  int64_t in_row = 0, row = 0;  // What comes next.
  for (int64_t done = 0; done < count;) {
    stretches.clear();
    int64_t lanes = 0, planned = done;
    while (lanes < kBlocks && planned < count) {
      const int64_t element = rows.first + row * rows.stride + in_row;
      Stretch stretch{lanes, element % 4, 0};
      const int64_t wanted = (stretch.skipped + rows.length - in_row + 3) / 4;
      const int64_t taken = std::min(wanted, kBlocks - lanes);
      for (int64_t b = 0; b < taken; ++b)
        counters[static_cast<size_t>(lanes + b)] = static_cast<uint64_t>(element / 4 + b);
      stretch.count = std::min(rows.length - in_row, 4 * taken - stretch.skipped);
      lanes += taken;
      planned += stretch.count;
      in_row += stretch.count;
      if (in_row == rows.length) {
        in_row = 0;
        ++row;
      }
      stretches.push_back(stretch);
    }
    philox_lanes(key, counters, words);
    make(words, values);
    for (const Stretch& stretch : stretches) {
      store(values, stretch, out.data() + done);
      done += stretch.count;
    }
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

void draw_uniform(uint64_t key, const StreamRows& rows, std::span<float> out) {
  draw(key, rows, out, [](const auto& words, auto& values) {
    for (size_t word = 0; word < 4; ++word) {
      for (size_t b = 0; b < kBlocks; ++b) values[word][b] = uniform_from_bits(words[word][b]);
    }
  });
}

void draw_normal(uint64_t key, const StreamRows& rows, std::span<float> out) {
  draw(key, rows, out, [](const auto& words, auto& values) {
    for (size_t pair = 0; pair < 4; pair += 2) {
      for (size_t b = 0; b < kBlocks; ++b) {
        const NormalPair normals = box_muller(words[pair][b], words[pair + 1][b]);
        values[pair][b] = normals.first;
        values[pair + 1][b] = normals.second;
      }
    }
  });
}

void draw_truncated_normal(uint64_t key, const StreamRows& rows, std::span<float> out) {
  constexpr float kRootTwo = 1.41421356f;
  constexpr float kErfOfRootTwo = 0.954499736f;
  draw(key, rows, out, [](const auto& words, auto& values) {
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
