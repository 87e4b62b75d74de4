// SPDX-License-Identifier: Apache-2.0
// The merges of byte-pair encoding, found by the two symbols: a flat hash table, made once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

class PairTable {
 public:
  struct Merge {
    int32_t rank = -1;  // Lower ones first; -1: these two do not merge.
    int32_t made = -1;  // The symbol that they become.
  };

  explicit PairTable(size_t most_pairs = 0) {
    size_t slots = 16;
    while (slots < 2 * most_pairs) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
  }

  // The last of several for one pair counts.
  void put(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[place(left, right)];
    slot = {left, right, merge};
  }

  Merge find(int32_t left, int32_t right) const { return slots_[place(left, right)].merge; }

  template <typename Take>
  void for_each(const Take& take) const {
    for (const Slot& slot : slots_)
      if (slot.left >= 0) take(slot.left, slot.right, slot.merge);
  }

 private:
  struct Slot {
    int32_t left = -1;  // -1: free.
    int32_t right = -1;
    Merge merge;
  };

  // Where the pair is, or the free slot where it would be.
  size_t place(int32_t left, int32_t right) const {
    const uint64_t pair =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
    size_t at = mixed & mask_;
    while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask_;
    return at;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace tessera
