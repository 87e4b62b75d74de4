// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11): a value is a pure function of
// (key, counter), so that initial weights and dropout masks do not depend on mesh, host count,
// microbatching or backend. Not a stateful generator.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds. Element i of a tensor is word i % 4 of the block at counter i / 4.
PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// The rounds of Philox, one at a time, for loops that run many blocks side by side.
class PhiloxRounds {
 public:
  static constexpr int kCount = 10;

  explicit PhiloxRounds(uint64_t key)
      : key0_(static_cast<uint32_t>(key)), key1_(static_cast<uint32_t>(key >> 32)) {}
  void apply(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) const {
    const uint64_t from_a = uint64_t{0xD2511F53u} * a;  // Multipliers: the paper's table 2.
    const uint64_t from_c = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(from_c >> 32) ^ b ^ key0_;
    b = static_cast<uint32_t>(from_c);
    c = static_cast<uint32_t>(from_a >> 32) ^ d ^ key1_;
    d = static_cast<uint32_t>(from_a);
  }
  void advance() {
    key0_ += 0x9E3779B9u;  // Weyl increments.
    key1_ += 0xBB67AE85u;
  }

 private:
  uint32_t key0_, key1_;
};

// A 64-bit key for a tensor's stream: seed and path hashed together; `layer` is the logical layer
// index of a repeated or unrolled layer's tensor (the path then holds "[]" in its place), or -1.
// Repeated and unrolled stacks so draw the same values.
uint64_t random_key(uint64_t seed, std::string_view path, int64_t layer = -1);

// A stream at one training step: element i is word i % 4 of the block at counter (i / 4, step).
struct RandomStream {
  uint64_t key = 0;
  uint64_t step = 0;
};

// The one formula from bits to values: 24 bits, in [0, 1).
inline float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

// Standard normals from one block by Box-Muller, in f32: words (0,1) give elements 0,1 and words
// (2,3) give elements 2,3.
std::array<float, 4> normals_from_block(const PhiloxBlock& block);

}  // namespace tessera
