// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11). A value is a pure function of
// (key, counter), so initial weights and dropout masks do not depend on the mesh, the number of
// hosts, microbatching or the backend. There is no generator state.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

using PhiloxBlock = std::array<uint32_t, 4>;

// Runs ten rounds. Element i of a tensor is word i % 4 of the block at counter i / 4.
PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// One round of Philox at a time, for loops over many blocks. This and the other constexpr functions
// here are also compiled for GPUs.
class PhiloxRounds {
 public:
  static constexpr int kCount = 10;

  constexpr explicit PhiloxRounds(uint64_t key)
      : key0_(static_cast<uint32_t>(key)), key1_(static_cast<uint32_t>(key >> 32)) {}
  constexpr void apply(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) const {
    const uint64_t from_a = uint64_t{0xD2511F53u} * a;  // Multipliers: the paper's table 2.
    const uint64_t from_c = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(from_c >> 32) ^ b ^ key0_;
    b = static_cast<uint32_t>(from_c);
    c = static_cast<uint32_t>(from_a >> 32) ^ d ^ key1_;
    d = static_cast<uint32_t>(from_a);
  }
  constexpr void advance() {
    key0_ += 0x9E3779B9u;  // Weyl increments.
    key1_ += 0xBB67AE85u;
  }

 private:
  uint32_t key0_, key1_;
};

// The finalizer of SplitMix64 (Steele et al., 2014): every input bit affects every output bit.
constexpr uint64_t mixed_bits(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

// Returns the 64-bit key of a tensor's stream: a hash of seed, path and layer. `layer` is the
// logical index of a layer in a stack, whose path then contains "[]" in place of the index, or -1.
// Repeated and unrolled stacks therefore draw the same values.
uint64_t random_key(uint64_t seed, std::string_view path, int64_t layer = -1);

// random_key() in two steps, for layers that are known later: the hash of seed and path, and the
// key of a layer from it.
uint64_t path_hash(uint64_t seed, std::string_view path);
constexpr uint64_t layer_key(uint64_t path_hash, int64_t layer) {
  return mixed_bits(path_hash + static_cast<uint64_t>(layer + 1));
}

// A stream at one training step: element i is word i % 4 of the block at counter (i / 4, step).
struct RandomStream {
  uint64_t key = 0;
  uint64_t step = 0;
};

// Returns a number in [0, 1), from the upper 24 bits.
constexpr float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

// Rounds an f32 to bf16 stochastically, on their bits: away from zero if the 16 bits that are cut
// off and the noise, 16 uniform bits, sum to a carry, so the mean is the f32. Values of bf16 and
// infinities stay as they are; NaN stays NaN.
constexpr uint32_t stochastic_bf16_bits(uint32_t f32_bits, uint32_t noise) {
  if ((f32_bits & 0x7fffffffu) > 0x7f800000u) return (f32_bits >> 16) | 0x0040u;
  return (f32_bits + noise) >> 16;
}

// Computes standard normals by the Box-Muller transform, in f32: words (0, 1) give elements 0 and
// 1, words (2, 3) give elements 2 and 3. The bits are the same on every machine.
std::array<float, 4> normals_from_block(const PhiloxBlock& block);

// Equally spaced ranges of a stream: elements [first + i·stride, first + i·stride + length) for
// i = 0, 1, …. A block of an array whose elements form one stream consists of such rows.
struct StreamRows {
  int64_t first = 0;
  int64_t length = 1;
  int64_t stride = 0;
};

// Vectorised versions of the formulas above. Each fills `out`, whose size is a multiple of
// rows.length, with consecutive rows of the stream. Element i of the stream depends on the key and
// i alone, and has the same bits on every machine: only IEEE additions, multiplications, divisions
// and square roots are used.
void draw_uniform(uint64_t key, const StreamRows& rows, std::span<float> out);  // In [0, 1).
void draw_normal(uint64_t key, const StreamRows& rows, std::span<float> out);   // N(0, 1).
void draw_truncated_normal(uint64_t key, const StreamRows& rows,
                           std::span<float> out);  // N(0, 1), truncated at ±2.

}  // namespace tessera
