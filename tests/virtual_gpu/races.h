// SPDX-License-Identifier: Apache-2.0
// Finds races. Each synchronisation of a block begins a new segment. Each warp has a vector clock
// (Lamport 1978): by warp, the segment before which accesses are ordered. Shadow cells hold the
// last writer and reader of 4 bytes, or of fewer after smaller accesses.
// Accesses of different blocks are unordered unless fences order them (block_order.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/virtual_gpu/block_order.h"
#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

// A tag is segment << 11 | accessor. Accessor: a thread (below 1024), several lanes of one warp,
// several warps, atomics of any thread, or an asynchronous copy that was not waited for.
inline constexpr uint32_t kWhoBits = 11, kWhoMask = (1u << kWhoBits) - 1;
inline constexpr uint32_t kLanesOf = 1024, kManyWarps = kLanesOf + kMaxWarps,
                          kAtomics = kManyWarps + 1, kCopying = kManyWarps + 2;

inline uint32_t tag_of(uint32_t segment, uint32_t who) { return segment << kWhoBits | who; }
inline int warp_of(uint32_t who) {
  return static_cast<int>(who < kLanesOf ? who / 32 : who - kLanesOf);
}

class Clocks {
 public:
  // True if segments should be renumbered before the next block or barrier.
  bool full() const { return now_ > kLast; }
  // Makes this block the one that runs. `order` must live until another block is entered.
  void enter(BlockOrder& order);
  void begin_block(int warps);
  // Orders all earlier accesses of the warps in `arrived` before later ones of those in `waiting`.
  void synchronise(uint32_t arrived, uint32_t waiting);
  // Discards old segments: cells of earlier blocks become kOldBlock, of this block kThisBlock.
  void renumber();
  uint32_t now() const { return now_; }
  uint32_t block_begin() const { return block_->begin; }
  // Returns the segment before which accesses of `other` are ordered before those of `warp` now.
  uint32_t ordered(int warp, int other) const { return block_->ordered[warp][other]; }
  uint32_t ordered_all(int warp) const { return std::ranges::min(block_->ordered[warp]); }

  // A fence of the whole GPU by these lanes.
  void fence(int warp, uint32_t lanes);
  // An atomic or volatile access of global memory, which may order blocks.
  void read_strongly(int thread, uint64_t address);
  void write_strongly(int thread, uint64_t address, bool replaces);
  // Whether an access of global memory is by another block.
  bool is_foreign(uint32_t tag) const {
    const uint32_t segment = tag >> kWhoBits;
    return segment < block_->begin || (interleaved_ && owners_[segment] != block_->number);
  }
  // Whether fences order an access of another block before the warp's current one.
  bool acquired(int warp, uint32_t tag) const;

  static constexpr uint32_t kOldBlock = 1, kThisBlock = 2;

 private:
  static constexpr uint32_t kLast = (1u << 21) - 8192;
  void next_segment();

  uint32_t now_ = 3, blocks_ = 0;
  BlockOrder only_, *block_ = &only_;
  bool interleaved_ = false;                                 // Several blocks run at a time.
  std::vector<uint32_t> owners_ = std::vector<uint32_t>(4);  // By segment: number of the block.
  std::map<uint64_t, Accesses> written_;  // By address: accesses ordered before a read.
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

// Accesses of a block that are ordered before the current one of a warp.
struct Knowledge {
  Knowledge(const Clocks& clocks, int warp)
      : clocks(clocks), warp(warp), all(clocks.ordered_all(warp)) {}
  // Whether the tag's access, by this block, is ordered before the current access of `thread`.
  bool orders(uint32_t tag, int thread) const {
    const uint32_t segment = tag >> kWhoBits, who = tag & kWhoMask;
    if (who == static_cast<uint32_t>(thread)) return true;
    if (who < kManyWarps) return segment < clocks.ordered(warp, warp_of(who));
    return who != kCopying && segment < all;
  }
  // Returns the reader that a cell keeps; one that is ordered before the new one is dropped.
  uint32_t merged_reader(uint32_t old, int thread) const {
    const uint32_t fresh = tag_of(clocks.now(), static_cast<uint32_t>(thread));
    if (clocks.is_foreign(old) || orders(old, thread)) return fresh;
    const uint32_t who = old & kWhoMask;
    const bool same_warp = who < kManyWarps && warp_of(who) == warp;
    return tag_of(clocks.now(), same_warp ? kLanesOf + static_cast<uint32_t>(warp) : kManyWarps);
  }

  const Clocks& clocks;
  const int warp;
  const uint32_t all;
};

struct Conflict {
  enum Kind : uint8_t { kNone, kStore, kLoad, kAtomic, kCopy, kUnwritten } kind = kNone;
  bool other_block = false;
  int thread = -1;  // -1: several threads.
};

// The shadow of one piece of memory.
class Shadow {
 public:
  // `across_blocks`: also checks against accesses of other blocks (global memory).
  Shadow(uint64_t bytes, bool across_blocks);
  // Checks and records an access, aligned to its size, a power of 2 of at most 16. kUnwritten: a
  // read of shared memory that the block did not write.
  Conflict touch(Access access, uint64_t offset, uint32_t bytes, int thread, const Clocks& clocks);
  // A fast path of touch() for loads and stores without a conflict. Returns false on a possible
  // conflict or if cells must be allocated; then call touch().
  template <bool Writes, bool AcrossBlocks>
  bool touch_freely(uint64_t offset, uint32_t bytes, int thread, const Knowledge& known);
  void renumber(uint32_t block_begin);
  // Adds the address ranges that were read and written to the log.
  void log(uint64_t address, AccessLog& log) const;

 private:
  struct Cell {
    uint32_t writer = 0, reader = 0;
  };
  static constexpr uint32_t kPage = 4096;
  struct Page {
    int shift = 2;  // A cell has 2^shift bytes.
    std::vector<Cell> cells;
  };
  Page& page(uint64_t offset, uint32_t bytes);
  static void refine(Page& page, int shift);

  bool across_blocks_;
  std::vector<std::unique_ptr<Page>> pages_;
};

template <bool Writes, bool AcrossBlocks>
bool Shadow::touch_freely(uint64_t offset, uint32_t bytes, int thread, const Knowledge& known) {
  Page* const page = pages_[offset / kPage].get();
  if (page == nullptr || ((offset | bytes) & ((1u << page->shift) - 1))) return false;
  // Whether the access is by another block, or before this one.
  const auto is_other = [&](uint32_t tag) {
    return AcrossBlocks ? known.clocks.is_foreign(tag)
                        : tag >> kWhoBits < known.clocks.block_begin();
  };
  const uint32_t own = tag_of(known.clocks.now(), static_cast<uint32_t>(thread));
  const auto free = [&](uint32_t tag) {
    if (is_other(tag)) return AcrossBlocks ? tag == 0 : Writes;
    return tag == own || known.orders(tag, thread);
  };
  Cell* cell = &page->cells[offset % kPage >> page->shift];
  Cell* const end = cell + (bytes >> page->shift);
  for (; cell != end; ++cell) {
    const uint32_t reader = cell->reader;
    if (!free(cell->writer)) return false;
    if constexpr (Writes) {
      if (!free(reader)) return false;
      cell->writer = own;
    } else if (reader != own && !(AcrossBlocks && reader && is_other(reader))) {
      cell->reader = known.merged_reader(reader, thread);
    }
  }
  return true;
}

}  // namespace tessera::virtual_gpu
