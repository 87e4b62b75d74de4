// SPDX-License-Identifier: Apache-2.0
// A shuffle that can be entered anywhere: a pseudo-random bijection of [0, size) computed an index
// at a time, with no table. An epoch's order is a pure function of (seed, epoch), so a run resumes
// at any position at once. Not a cipher.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  int64_t size() const { return size_; }
  int64_t operator()(int64_t index) const;

 private:
  // Four rounds make a strong pseudo-random permutation of a large domain (Luby and Rackoff, 1988);
  // small domains are better mixed by a few more.
  static constexpr int kRounds = 8;
  uint64_t feistel(uint64_t value) const;

  int64_t size_ = 0;
  std::array<uint64_t, kRounds> keys_{};
  int half_bits_ = 1;  // The network permutes [0, 4^half_bits_), the least such that holds size_.
};

// A well-mixed function of both words (the finaliser of splitmix64, Steele et al., OOPSLA'14).
uint64_t mix_bits(uint64_t word, uint64_t key);

}  // namespace tessera
