// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/races.h"

#include <algorithm>
#include <bit>

namespace tessera::virtual_gpu {
namespace {

Conflict conflict_with(uint32_t tag, Conflict::Kind kind, const Clocks& clocks) {
  const uint32_t who = tag & kWhoMask;
  Conflict conflict{kind, clocks.is_foreign(tag), who < kLanesOf ? static_cast<int>(who) : -1};
  if (who == kAtomics) conflict.kind = Conflict::kAtomic;
  if (who == kCopying) conflict.kind = Conflict::kCopy;
  return conflict;
}

}  // namespace

void Clocks::next_segment() {
  ++now_;
  owners_.push_back(block_->number);
}

void Clocks::enter(BlockOrder& order) {
  if (block_ == &order) return;
  interleaved_ |= block_ != &only_;
  block_ = &order;
  next_segment();
}

void Clocks::begin_block(int warps) {
  block_->number = ++blocks_;
  next_segment();
  block_->begin = now_;
  block_->acquired.clear(), block_->pending.clear(), block_->released.clear();
  for (auto& row : block_->ordered) {
    row.fill(UINT32_MAX);  // Warps that the block does not have.
    std::fill_n(row.begin(), warps, now_);
  }
}

void Clocks::synchronise(uint32_t arrived, uint32_t waiting) {
  next_segment();
  auto& ordered = block_->ordered;
  std::array<uint32_t, kMaxWarps> known{};
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    if (!(arrived >> warp & 1)) continue;
    for (int other = 0; other < kMaxWarps; ++other)
      known[other] = std::max(known[other], ordered[warp][other]);
    known[warp] = now_;
  }
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    if (!(waiting >> warp & 1)) continue;
    for (int other = 0; other < kMaxWarps; ++other)
      ordered[warp][other] = std::max(ordered[warp][other], known[other]);
  }
  if (block_->acquired.empty()) return;
  Accesses all;
  for (const auto& [warp, accesses] : block_->acquired)
    if (arrived >> warp & 1) join(all, accesses);
  for (int warp = 0; warp < kMaxWarps; ++warp)
    if (waiting >> warp & 1) join(block_->acquired[warp], all);
}

void Clocks::fence(int warp, uint32_t lanes) {
  Accesses& known = block_->acquired[warp];
  join(known, block_->pending[warp]);
  next_segment();
  for (; lanes; lanes &= lanes - 1) {
    const int thread = 32 * warp + std::countr_zero(lanes);
    Accesses& released = block_->released[thread];
    released = known;
    released[block_->number] = {block_->ordered[warp], {{static_cast<uint32_t>(thread), now_}}};
  }
}

void Clocks::read_strongly(int thread, uint64_t address) {
  if (const auto found = written_.find(address); found != written_.end())
    join(block_->pending[thread / 32], found->second);
}

void Clocks::write_strongly(int thread, uint64_t address, bool replaces) {
  const auto released = block_->released.find(thread);
  if (replaces) written_.erase(address);
  if (released != block_->released.end()) join(written_[address], released->second);
}

bool Clocks::acquired(int warp, uint32_t tag) const {
  const uint32_t segment = tag >> kWhoBits, who = tag & kWhoMask;
  const auto known = block_->acquired.find(warp);
  if (known == block_->acquired.end() || who == kCopying) return false;
  const auto found = known->second.find(owners_[segment]);
  if (found == known->second.end()) return false;
  const BlockAccesses& accesses = found->second;
  if (const auto own = accesses.threads.find(who);
      own != accesses.threads.end() && segment < own->second)
    return true;
  return segment < (who < kManyWarps ? accesses.warps[static_cast<size_t>(warp_of(who))]
                                     : std::ranges::min(accesses.warps));
}

void Clocks::renumber() {
  now_ = kThisBlock + 1;
  block_->begin = kThisBlock;
  owners_ = {0, 0, block_->number, block_->number};
  block_->acquired.clear(), block_->pending.clear(), block_->released.clear(), written_.clear();
  for (auto& row : block_->ordered)
    for (uint32_t& segment : row)
      if (segment != UINT32_MAX) segment = now_;
}

Shadow::Shadow(uint64_t bytes, bool across_blocks)
    : across_blocks_(across_blocks), pages_((bytes + kPage - 1) / kPage) {}

Shadow::Page& Shadow::page(uint64_t offset, uint32_t bytes) {
  auto& page = pages_[offset / kPage];
  if (!page) {
    page = std::make_unique<Page>();
    page->cells.assign(kPage >> 2, Cell{});
  }
  if ((offset | bytes) & ((1u << page->shift) - 1))
    refine(*page, std::countr_zero(static_cast<uint32_t>(offset | bytes)));
  return *page;
}

void Shadow::refine(Page& page, int shift) {
  const int copies = 1 << (page.shift - shift);
  std::vector<Cell> cells;
  cells.reserve(kPage >> shift);
  for (const Cell& cell : page.cells) cells.insert(cells.end(), copies, cell);
  page.cells = std::move(cells);
  page.shift = shift;
}

Conflict Shadow::touch(Access access, uint64_t offset, uint32_t bytes, int thread,
                       const Clocks& clocks) {
  Page& part = page(offset, bytes);
  const Knowledge known(clocks, thread / 32);
  const uint32_t own = tag_of(clocks.now(), static_cast<uint32_t>(thread));
  const bool only_reads = reads(access) && access != Access::kAtomic;
  const bool exempt = access == Access::kAtomic || access == Access::kRelaxedRead ||
                      access == Access::kRelaxedWrite;
  const auto earlier_block = [&](uint32_t tag) {
    return across_blocks_ ? clocks.is_foreign(tag) : tag >> kWhoBits < clocks.block_begin();
  };
  const auto races = [&](uint32_t tag) {
    if (tag == own || access == Access::kCopyEnd) return false;
    if (exempt && (tag & kWhoMask) == kAtomics) return false;
    if (!earlier_block(tag)) return !known.orders(tag, thread);
    return across_blocks_ && tag != 0 && !clocks.acquired(thread / 32, tag);
  };
  const uint32_t fresh = exempt                         ? tag_of(clocks.now(), kAtomics)
                         : access == Access::kCopyBegin ? tag_of(clocks.now(), kCopying)
                                                        : own;
  Cell* cell = &part.cells[offset % kPage >> part.shift];
  Cell* const end = cell + (bytes >> part.shift);
  for (; cell != end; ++cell) {
    const uint32_t writer = cell->writer, reader = cell->reader;
    if (!across_blocks_ && reads(access) && earlier_block(writer)) return {Conflict::kUnwritten};
    if (races(writer)) return conflict_with(writer, Conflict::kStore, clocks);
    if (!only_reads) {
      if (races(reader)) return conflict_with(reader, Conflict::kLoad, clocks);
      cell->writer = fresh;
    } else if (exempt) {
      cell->reader = fresh;
    } else if (reader != own && !(across_blocks_ && races(reader) && earlier_block(reader))) {
      cell->reader = known.merged_reader(reader, thread);
    }
  }
  return {};
}

void Shadow::renumber(uint32_t block_begin) {
  const auto renamed = [&](uint32_t tag) {
    if (tag == 0) return tag;
    const bool current = tag >> kWhoBits >= block_begin;
    return tag_of(current ? Clocks::kThisBlock : Clocks::kOldBlock, tag & kWhoMask);
  };
  for (auto& page : pages_)
    if (page)
      for (Cell& cell : page->cells)
        cell.writer = renamed(cell.writer), cell.reader = renamed(cell.reader);
}

void Shadow::log(uint64_t address, AccessLog& log) const {
  const auto add = [](std::vector<ByteRange>& ranges, uint64_t begin, uint64_t end) {
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end});
    }
  };
  for (size_t p = 0; p < pages_.size(); ++p) {
    if (!pages_[p]) continue;
    const Page& page = *pages_[p];
    for (size_t c = 0; c < page.cells.size(); ++c) {
      const uint64_t begin = address + p * kPage + (c << page.shift);
      const uint64_t end = begin + (uint64_t{1} << page.shift);
      const Cell& cell = page.cells[c];
      if (cell.writer) add(log.writes, begin, end);
      if (cell.reader || (cell.writer & kWhoMask) == kAtomics) add(log.reads, begin, end);
    }
  }
}

}  // namespace tessera::virtual_gpu
