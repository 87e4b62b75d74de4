// SPDX-License-Identifier: Apache-2.0
#include "core/base/random.h"

#include <cmath>

namespace tessera {
namespace {

// Multipliers and Weyl increments of Philox4x32 (Salmon et al., 2011, table 2).
constexpr uint64_t kMultiplier0 = 0xD2511F53u;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

// The finaliser of SplitMix64 (Steele et al., 2014): every input bit reaches every output bit.
uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

}  // namespace

PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock block = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                       static_cast<uint32_t>(counter_high),
                       static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * block[0];
    const uint64_t product1 = kMultiplier1 * block[2];
    block = {
        static_cast<uint32_t>(product1 >> 32) ^ block[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ block[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return block;
}

uint64_t random_key(uint64_t seed, std::string_view path, int64_t layer) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over the path.
  for (const char character : path) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  }
  return mixed(mixed(mixed(seed + 0x9E3779B97F4A7C15u) ^ hash) + static_cast<uint64_t>(layer + 1));
}

std::array<float, 4> normals_from_block(const PhiloxBlock& block) {
  constexpr float kTwoPi = 6.28318530717958647692f;
  std::array<float, 4> normals{};
  for (size_t pair = 0; pair < 4; pair += 2) {
    // 1 - u lies in (0, 1], so that its logarithm is finite.
    const float radius = std::sqrt(-2.0f * std::log(1.0f - uniform_from_bits(block[pair])));
    const float angle = kTwoPi * uniform_from_bits(block[pair + 1]);
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace tessera
