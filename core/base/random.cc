// SPDX-License-Identifier: Apache-2.0
#include "core/base/random.h"

#include "core/base/normal.h"

namespace tessera {
namespace {

// The finaliser of SplitMix64 (Steele et al., 2014): every input bit reaches every output bit.
uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
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

uint64_t random_key(uint64_t seed, std::string_view path, int64_t layer) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over the path.
  for (const char character : path) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  }
  return mixed(mixed(mixed(seed + 0x9E3779B97F4A7C15u) ^ hash) + static_cast<uint64_t>(layer + 1));
}

std::array<float, 4> normals_from_block(const PhiloxBlock& block) {
  const NormalPair a = box_muller(block[0], block[1]);
  const NormalPair b = box_muller(block[2], block[3]);
  return {a.first, a.second, b.first, b.second};
}

}  // namespace tessera
