// SPDX-License-Identifier: Apache-2.0
#include "core/compile/memory/step_program.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

namespace tessera {
namespace {

bool overlap(const PackedBlock& a, const PackedBlock& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  return together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST_CASE("Blocks in use at the same time never overlap") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<PackedBlock> blocks;
    for (int i = 0; i < 120; ++i) {
      const auto first = static_cast<int64_t>(random() % 60);
      blocks.push_back({.bytes = static_cast<int64_t>(1 + random() % 5000),
                        .first = first,
                        .last = first + static_cast<int64_t>(random() % 20)});
    }
    const int64_t bytes = pack_arena(blocks);
    int64_t end = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      REQUIRE(blocks[i].offset % kAlignment == 0);
      end = std::max(end, blocks[i].offset + aligned(blocks[i].bytes));
      for (size_t j = 0; j < i; ++j) REQUIRE(!overlap(blocks[i], blocks[j]));
    }
    REQUIRE(bytes == end);
    REQUIRE(bytes >= max_live_bytes(blocks));
    REQUIRE(bytes <= max_live_bytes(blocks) * 5 / 4);  // A good packing wastes less.
  }
}

TEST_CASE("Nested live ranges, as of activations, are packed without gaps") {
  std::vector<PackedBlock> blocks;
  for (int64_t i = 0; i < 20; ++i)
    blocks.push_back({.bytes = 64 * (1 + i % 3), .first = i, .last = 40 - i});
  REQUIRE(pack_arena(blocks) == max_live_bytes(blocks));
}

// A simple version of pack_arena(): each block is compared with all others.
class PlainPacking {
 public:
  explicit PlainPacking(const std::vector<PackedBlock>& blocks) : blocks_(blocks) {}

  // Packs blocks in order of first use, each into the smallest free gap, or the first of equal
  // ones. Memory after the last block that was used before is a gap too.
  std::vector<int64_t> by_time() const {
    return offsets([](const PackedBlock& block) { return block.first; }, Behind::kGap);
  }
  // The largest blocks first, each into the smallest gap between those used at the same time.
  std::vector<int64_t> by_size() const {
    return offsets([](const PackedBlock& block) { return -block.bytes; }, Behind::kFree);
  }

 private:
  enum class Behind { kGap, kFree };

  template <typename Key>
  std::vector<int64_t> offsets(const Key& key, Behind behind) const {
    std::vector<size_t> order(blocks_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return key(blocks_[i]); });
    std::vector<int64_t> offsets(blocks_.size(), 0);
    std::vector<size_t> placed;
    int64_t top = 0;
    for (const size_t i : order) {
      std::ranges::sort(placed, {}, [&](size_t j) { return offsets[j]; });
      const int64_t bytes = aligned(blocks_[i].bytes);
      int64_t end = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
      const auto consider = [&](int64_t gap) {
        if (gap < bytes || gap >= best_gap) return;
        best = end;
        best_gap = gap;
      };
      for (const size_t j : placed) {
        const bool together =
            blocks_[i].first <= blocks_[j].last && blocks_[j].first <= blocks_[i].last;
        if (!together) continue;
        consider(offsets[j] - end);
        end = std::max(end, offsets[j] + aligned(blocks_[j].bytes));
      }
      if (behind == Behind::kGap) consider(top - end);
      offsets[i] = best >= 0 ? best : end;
      top = std::max(top, offsets[i] + bytes);
      placed.push_back(i);
    }
    return offsets;
  }

  const std::vector<PackedBlock>& blocks_;
};

TEST_CASE("Blocks have the places of the better one of two plain heuristics") {
  std::mt19937_64 random(2);
  int by_time = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<PackedBlock> blocks;
    for (int i = 0; i < 300; ++i) {
      const auto first = static_cast<int64_t>(random() % 2000) - 1;
      const uint64_t most = random() % 8 == 0 ? 1500 : 30;  // Some are used for long.
      blocks.push_back({.bytes = static_cast<int64_t>(64 * (1 + random() % (round < 6 ? 3 : 60))),
                        .first = first,
                        .last = first + static_cast<int64_t>(random() % most)});
    }
    const auto end_of = [&](const std::vector<int64_t>& offsets) {
      int64_t end = 0;
      for (size_t i = 0; i < blocks.size(); ++i)
        end = std::max(end, offsets[i] + aligned(blocks[i].bytes));
      return end;
    };
    const PlainPacking plain(blocks);
    const std::vector<int64_t> time = plain.by_time(), size = plain.by_size();
    const bool is_by_time = end_of(time) == max_live_bytes(blocks) || end_of(time) <= end_of(size);
    by_time += is_by_time ? 1 : 0;
    REQUIRE(pack_arena(blocks) == end_of(is_by_time ? time : size));
    std::vector<int64_t> offsets;
    for (const PackedBlock& block : blocks) offsets.push_back(block.offset);
    REQUIRE(offsets == (is_by_time ? time : size));
  }
  REQUIRE(by_time > 0);
  REQUIRE(by_time < 12);
}

TEST_CASE("A block that is never used changes no other place") {
  std::vector<PackedBlock> blocks;
  for (int64_t i = 0; i < 40; ++i)
    blocks.push_back({.bytes = 64 * (1 + i % 7), .first = i, .last = i + 9 - i % 5});
  std::vector<PackedBlock> more = blocks;
  more.push_back({.bytes = 64, .first = std::numeric_limits<int64_t>::max(), .last = -1});
  REQUIRE(pack_arena(more) == pack_arena(blocks));
  for (size_t i = 0; i < blocks.size(); ++i) REQUIRE(more[i].offset == blocks[i].offset);
}

}  // namespace
}  // namespace tessera
