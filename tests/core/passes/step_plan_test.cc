// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/step_plan.h"

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
    REQUIRE(bytes <= max_live_bytes(blocks) * 5 / 4);  // Of what a good packing wastes.
  }
}

TEST_CASE("Nested live ranges, as of activations, are packed without gaps") {
  std::vector<PackedBlock> blocks;
  for (int64_t i = 0; i < 20; ++i)
    blocks.push_back({.bytes = 64 * (1 + i % 3), .first = i, .last = 40 - i});
  REQUIRE(pack_arena(blocks) == max_live_bytes(blocks));
}

}  // namespace
}  // namespace tessera
