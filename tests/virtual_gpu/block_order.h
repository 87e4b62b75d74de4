// SPDX-License-Identifier: Apache-2.0
// The order of accesses of different blocks of a launch: a fence of the whole GPU, then an atomic
// or volatile access that another block reads, then a fence there (PTX ISA, "Memory consistency
// model": release and acquire patterns). Without both fences the accesses are a race.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

namespace tessera::virtual_gpu {

inline constexpr int kMaxWarps = 32;

// The accesses of one block that are ordered before another access.
struct BlockAccesses {
  std::array<uint32_t, kMaxWarps> warps{};    // By warp: all accesses before this segment.
  std::map<uint32_t, uint32_t> threads = {};  // By thread: further ones before this segment.

  void join(const BlockAccesses& other) {
    for (size_t w = 0; w < warps.size(); ++w) warps[w] = std::max(warps[w], other.warps[w]);
    for (const auto& [thread, until] : other.threads)
      threads[thread] = std::max(threads[thread], until);
  }
};
using Accesses = std::map<uint32_t, BlockAccesses>;  // By the number of the block.

inline void join(Accesses& to, const Accesses& from) {
  for (const auto& [block, accesses] : from) to[block].join(accesses);
}

// The order of accesses of a running block.
struct BlockOrder {
  uint32_t number = 0, begin = 3;  // The segment in which it began.
  // By warp and other warp: the segment before which accesses of the other are ordered before now.
  std::array<std::array<uint32_t, kMaxWarps>, kMaxWarps> ordered{};
  // Accesses of other blocks. By warp: those ordered before its next access (`acquired`), and those
  // that its next fence will add (`pending`). By thread: those that its last fence released.
  std::map<int, Accesses> acquired = {}, pending = {}, released = {};
};

}  // namespace tessera::virtual_gpu
