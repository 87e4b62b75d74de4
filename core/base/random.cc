// SPDX-License-Identifier: Apache-2.0
// The draw_* loops are written so that the compiler vectorises them: plain loops over lanes, no
// branches, no library calls. This file is compiled without fused multiply-add, which would round
// differently.
#include "core/base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

// Returns ln x for a normal number x > 0 (polynomials of Moshier's Cephes library).
inline float natural_log(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // x = 2^e·m with √½ <= m < √2.
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - kRootHalf) >> 23;
  const float e = static_cast<float>(exponent);
  const float t = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * t - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  const float square = t * t;
  float rest = p * t * square;
  rest = rest - 2.12194440e-4f * e;  // ln 2 = 0.693359375 - 2.12194440e-4.
  rest = rest - 0.5f * square;
  return t + rest + 0.693359375f * e;
}

struct NormalPair {
  float first = 0.0f, second = 0.0f;
};

// The upper 24 bits of each word are used: one for the radius, one for the angle.
inline NormalPair box_muller(uint32_t radius_bits, uint32_t angle_bits) {
  const float u = static_cast<float>(radius_bits >> 8) * 0x1p-24f;
  const float radius = std::sqrt(-2.0f * natural_log(1.0f - u));

  // The angle as quarter turns (0 to 4, where 4 is 0 again) and a remainder of at most an eighth.
  const int32_t turn = static_cast<int32_t>(angle_bits >> 8);  // In units of 2^-24 turns.
  const int32_t quarter = (turn + (1 << 21)) >> 22;
  const float x = static_cast<float>(turn - (quarter << 22)) * (1.57079633f * 0x1p-22f);
  const float z = x * x;
  float s = -1.9515295891e-4f;
  s = s * z + 8.3321608736e-3f;
  s = s * z - 1.6666654611e-1f;
  const float sine = s * z * x + x;
  float c = 2.443315711809948e-5f;
  c = c * z - 1.388731625493765e-3f;
  c = c * z + 4.166664568298827e-2f;
  const float cosine = c * z * z - 0.5f * z + 1.0f;

  const bool swap = (quarter & 1) != 0;
  const float near_cosine = swap ? sine : cosine, near_sine = swap ? cosine : sine;
  const float cosine_sign = ((quarter + 1) & 2) != 0 ? -1.0f : 1.0f;
  const float sine_sign = (quarter & 2) != 0 ? -1.0f : 1.0f;
  return {radius * (near_cosine * cosine_sign), radius * (near_sine * sine_sign)};
}

constexpr int64_t kBlocks = 64;  // Philox blocks computed together, one per lane.
using Lane = std::array<uint32_t, kBlocks>;

// Computes Philox of all counters, round by round over all lanes: words[w][b] is word w of lane b.
void philox_lanes(uint64_t key, const std::array<uint64_t, kBlocks>& counters,
                  std::array<Lane, 4>& words) {
  for (size_t b = 0; b < kBlocks; ++b) {
    words[0][b] = static_cast<uint32_t>(counters[b]);
    words[1][b] = static_cast<uint32_t>(counters[b] >> 32);
    words[2][b] = words[3][b] = 0;
  }
  PhiloxRounds round(key);
  for (int i = 0; i < PhiloxRounds::kCount; ++i, round.advance())
    for (size_t b = 0; b < kBlocks; ++b)
      round.apply(words[0][b], words[1][b], words[2][b], words[3][b]);
}

// Consecutive lanes that hold elements of one row.
struct Segment {
  int64_t lane = 0;     // The first lane.
  int64_t skipped = 0;  // Elements of the first lane that precede the row.
  int64_t count = 0;    // Elements of the row.
};

using Values = std::array<std::array<float, kBlocks>, 4>;

void store(const Values& values, const Segment& segment, float* out) {
  const int64_t from = 4 * segment.lane + segment.skipped;
  for (int64_t i = 0; i < segment.count; ++i)
    out[i] = values[static_cast<size_t>((from + i) % 4)][static_cast<size_t>((from + i) / 4)];
}

// Fills the lanes with as many rows as fit, converts their bits by convert(words, values) and
// stores the values, until `out` is full.
template <typename Convert>
void draw(uint64_t key, const StreamRows& rows, std::span<float> out, Convert convert) {
  const int64_t count = std::ssize(out);
  CHECK(rows.first >= 0 && rows.length > 0 && count % rows.length == 0, "rows of {} in {} elements",
        rows.length, count);
  std::array<uint64_t, kBlocks> counters{};
  std::array<Lane, 4> words;
  Values values;
  std::vector<Segment> segments;
  int64_t in_row = 0, row = 0;  // The next element.
  for (int64_t done = 0; done < count;) {
    segments.clear();
    int64_t lanes = 0, planned = done;
    while (lanes < kBlocks && planned < count) {
      const int64_t element = rows.first + row * rows.stride + in_row;
      Segment segment{lanes, element % 4, 0};
      const int64_t wanted = (segment.skipped + rows.length - in_row + 3) / 4;
      const int64_t taken = std::min(wanted, kBlocks - lanes);
      for (int64_t b = 0; b < taken; ++b)
        counters[static_cast<size_t>(lanes + b)] = static_cast<uint64_t>(element / 4 + b);
      segment.count = std::min(rows.length - in_row, 4 * taken - segment.skipped);
      lanes += taken;
      planned += segment.count;
      in_row += segment.count;
      if (in_row == rows.length) {
        in_row = 0;
        ++row;
      }
      segments.push_back(segment);
    }
    philox_lanes(key, counters, words);
    convert(words, values);
    for (const Segment& segment : segments) {
      store(values, segment, out.data() + done);
      done += segment.count;
    }
  }
}

// Returns the inverse of erf for |x| <= erf(√2), accurate to 1e-6 (Giles, "Approximating the erfinv
// function", 2012, the central branch).
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

PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  PhiloxBlock block = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                       static_cast<uint32_t>(counter_high),
                       static_cast<uint32_t>(counter_high >> 32)};
  PhiloxRounds round(key);
  for (int i = 0; i < PhiloxRounds::kCount; ++i, round.advance())
    round.apply(block[0], block[1], block[2], block[3]);
  return block;
}

uint64_t path_hash(uint64_t seed, std::string_view path) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over the path.
  for (const char character : path)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  return mixed_bits(mixed_bits(seed + 0x9E3779B97F4A7C15u) ^ hash);
}

uint64_t random_key(uint64_t seed, std::string_view path, int64_t layer) {
  return layer_key(path_hash(seed, path), layer);
}

std::array<float, 4> normals_from_block(const PhiloxBlock& block) {
  const NormalPair a = box_muller(block[0], block[1]);
  const NormalPair b = box_muller(block[2], block[3]);
  return {a.first, a.second, b.first, b.second};
}

void draw_uniform(uint64_t key, const StreamRows& rows, std::span<float> out) {
  draw(key, rows, out, [](const auto& words, auto& values) {
    for (size_t word = 0; word < 4; ++word)
      for (size_t b = 0; b < kBlocks; ++b) values[word][b] = uniform_from_bits(words[word][b]);
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
        // The midpoint of one of 2^24 intervals of equal probability.
        const float centred = (uniform_from_bits(words[word][b]) - 0.5f) * 2.0f + 0x1p-24f;
        values[word][b] = kRootTwo * inverse_erf(centred * kErfOfRootTwo);
      }
    }
  });
}

}  // namespace tessera
