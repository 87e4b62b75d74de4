// SPDX-License-Identifier: Apache-2.0
// Finds races. Each synchronisation of a block begins a new segment of time; a warp knows of every
// warp the segment before which its accesses are ordered (a vector clock, Lamport 1978). Shadow
// cells hold the last writer and reader of 4 bytes, or of fewer where smaller accesses happen.
// Blocks run one after another, so that every access of an earlier block is unordered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

inline constexpr int kMaxWarps = 32;

class Clocks {
 public:
  // True if segments should be renumbered before the next block or barrier.
  bool full() const { return now_ > kLast; }
  void begin_block(int warps);
  // All accesses of the warps in `arrived` before are ordered before those of `waiting` after.
  void synchronise(uint32_t arrived, uint32_t waiting);
  // Forgets old segments: cells of earlier blocks become kOldBlock, of this block kThisBlock.
  void renumber();
  uint32_t now() const { return now_; }
  uint32_t block_begin() const { return block_begin_; }
  // Accesses of `other` in segments before this are ordered before what `warp` does now.
  uint32_t ordered(int warp, int other) const { return ordered_[warp][other]; }
  uint32_t ordered_all(int warp) const;

  static constexpr uint32_t kOldBlock = 1, kThisBlock = 2;

 private:
  static constexpr uint32_t kLast = (1u << 21) - 8192;
  uint32_t now_ = 3, block_begin_ = 3;
  std::array<std::array<uint32_t, kMaxWarps>, kMaxWarps> ordered_{};
};

enum class Access : uint8_t {
  kRead,
  kRelaxedRead,
  kAtomic,
  kWrite,
  kRelaxedWrite,
  kCopyBegin,
  kCopyEnd
};
inline bool reads(Access access) { return access <= Access::kAtomic; }

struct Conflict {
  enum Kind : uint8_t { kNone, kStore, kLoad, kAtomic, kCopy, kUnwritten } kind = kNone;
  bool other_block = false;
  int thread = -1;  // -1: several.
};

// The shadow of one piece of memory.
class Shadow {
 public:
  // `across_blocks`: accesses of earlier blocks count (global memory).
  Shadow(uint64_t bytes, bool across_blocks);
  // Aligned to its size, which is a power of 2 of at most 16. kUnwritten: a read of shared memory
  // that the block did not write.
  Conflict touch(Access access, uint64_t offset, uint32_t bytes, int thread, const Clocks& clocks);
  void renumber(uint32_t block_begin);
  // What was read and written, in addresses.
  void log(uint64_t address, AccessLog& log) const;

 private:
  struct Cell {
    uint32_t writer = 0, reader = 0;
  };
  static constexpr uint32_t kPage = 4096;
  struct Page {
    int shift = 2;  // Bytes of a cell, as a power of 2.
    std::vector<Cell> cells;
  };
  Page& page(uint64_t offset, uint32_t bytes);
  static void refine(Page& page, int shift);

  bool across_blocks_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace tessera::virtual_gpu
