// SPDX-License-Identifier: Apache-2.0
// What orders accesses of different blocks of a launch: a fence of the whole GPU, then an atomic or
// volatile access that another block reads, then a fence there (PTX ISA, "Memory consistency
// model": release and acquire patterns). Without both fences the accesses are a race.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

namespace tessera::virtual_gpu {

inline constexpr int kMaxWarps = 32;

// Accesses of one block.
struct BlockAccesses {
  std::array<uint32_t, kMaxWarps> warps{};    // Those of all lanes in segments before this.
  std::map<uint32_t, uint32_t> threads = {};  // Further ones, of single threads.

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

// Of one block, while it runs.
struct BlockOrder {
  uint32_t number = 0, begin = 3;  // The segment in which it began.
  // By warp: accesses of another one in segments before this are ordered before what it does now.
  std::array<std::array<uint32_t, kMaxWarps>, kMaxWarps> ordered{};
  // Accesses of other blocks. By warp: those that it knows of, and those that it will know of after
  // a fence. By thread: what others know of after its fence and what it writes then.
  std::map<int, Accesses> acquired = {}, pending = {}, released = {};
};

}  // namespace tessera::virtual_gpu
