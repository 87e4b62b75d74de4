// SPDX-License-Identifier: Apache-2.0
#include "inputs/permutation.h"

#include "core/base/error.h"

namespace tessera {

uint64_t mix_bits(uint64_t word, uint64_t key) {
  word = (word ^ key) + 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  CHECK(size >= 1 && size <= int64_t{1} << 60, "permutation of {} indices", size);
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
  const uint64_t key = mix_bits(epoch, mix_bits(seed, 0x7065726d75746174u));
  for (int round = 0; round < kRounds; ++round)
    keys_[round] = mix_bits(static_cast<uint64_t>(round), key);
}

uint64_t Permutation::feistel(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t key : keys_) {
    const uint64_t next = left ^ (mix_bits(right, key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  CHECK(index >= 0 && index < size_, "index {} of {}", index, size_);
  // Cycle walking (Black and Rogaway, 2002): the network's domain is less than four times ours, so
  // fewer than four steps are expected.
  uint64_t value = static_cast<uint64_t>(index);
  do value = feistel(value);
  while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace tessera
