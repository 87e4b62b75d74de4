// SPDX-License-Identifier: Apache-2.0
// The ids of words met lately: words repeat, and looking one up takes a hundredth of merging it. A
// word evicts the one in its place. For one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 31;
  static constexpr size_t kMostIds = 7;

  // One cache line.
  struct alignas(64) Entry {
    std::array<uint64_t, 4> key{};  // The word's bytes, zeros, and its length as the last byte.
    std::array<int32_t, kMostIds> ids{};
    int32_t count = 0;
  };

  WordCache() : entries_(size_t{1} << kBits) {}

  // Where a word of 1 to 31 bytes is, or would be; *key is what it is known by.
  Entry& place(std::string_view word, std::array<uint64_t, 4>* key) {
    *key = {};
    std::memcpy(key->data(), word.data(), word.size());
    (*key)[3] |= static_cast<uint64_t>(word.size()) << 56;
    uint64_t mixed = (*key)[0] * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 32) ^ (*key)[1]) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 29) ^ (*key)[2]) * 0x94d049bb133111ebu;
    mixed = (mixed ^ (mixed >> 31) ^ (*key)[3]) * 0x9e3779b97f4a7c15u;
    return entries_[mixed >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;
  std::vector<Entry> entries_;
};

}  // namespace tessera
