// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/happens_before.h"

#include <algorithm>

namespace tessera::virtual_gpu {

void Clock::join(const Clock& other) {
  times_.resize(std::max(times_.size(), other.times_.size()));
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

void Clock::set(size_t component, uint64_t time) {
  times_.resize(std::max(times_.size(), component + 1));
  times_[component] = time;
}

void AccessHistory::split_at(uint64_t address) {
  auto after = cells_.lower_bound(address);
  if (after == cells_.begin()) return;
  const auto before = std::prev(after);
  if (before->second.end <= address) return;
  cells_.emplace_hint(after, address, before->second);
  before->second.end = address;
}

std::optional<Stamp> AccessHistory::unordered_read(const Cell& cell, const Clock& clock) {
  for (const Stamp& read : cell.reads)
    if (!read.is_before(clock)) return read;
  return std::nullopt;
}

std::optional<UnorderedAccess> AccessHistory::conflict(ByteRange bytes, const Clock& clock) const {
  auto at = cells_.upper_bound(bytes.begin);
  if (at != cells_.begin()) --at;
  for (; at != cells_.end() && at->first < bytes.end; ++at) {
    const Cell& cell = at->second;
    if (cell.end <= bytes.begin) continue;
    const ByteRange both{std::max(at->first, bytes.begin), std::min(cell.end, bytes.end)};
    if (cell.write && !cell.write->is_before(clock))
      return UnorderedAccess{both, *cell.write, true, true};
    if (const auto read = unordered_read(cell, clock))
      return UnorderedAccess{both, *read, false, true};
  }
  return std::nullopt;
}

std::optional<UnorderedAccess> AccessHistory::read(ByteRange bytes, const Stamp& stamp,
                                                   const Clock& clock) {
  std::optional<UnorderedAccess> found;
  uint64_t at = bytes.begin;
  while (at < bytes.end) {
    auto next = cells_.lower_bound(at);
    if (next == cells_.end() || next->first > at) {  // Bytes that nothing has used.
      const uint64_t end = next == cells_.end() ? bytes.end : std::min(next->first, bytes.end);
      next = cells_.emplace_hint(next, at, Cell{.end = end, .write = std::nullopt, .reads = {}});
    }
    Cell& cell = next->second;
    if (!found && cell.write && !cell.write->is_before(clock))
      found = UnorderedAccess{{at, cell.end}, *cell.write, true, false};
    std::erase_if(cell.reads, [&](const Stamp& s) { return s.component == stamp.component; });
    cell.reads.push_back(stamp);
    at = cell.end;
  }
  return found;
}

std::optional<UnorderedAccess> AccessHistory::add(const AccessLog& log, const Stamp& stamp,
                                                  const Clock& clock) {
  std::optional<UnorderedAccess> found;
  for (const ByteRange& bytes : log.reads) {
    split_at(bytes.begin);
    split_at(bytes.end);
    const auto conflict = read(bytes, stamp, clock);
    if (!found) found = conflict;
  }
  for (const ByteRange& bytes : log.writes) {
    if (!found) found = conflict(bytes, clock);
    split_at(bytes.begin);
    split_at(bytes.end);
    cells_.erase(cells_.lower_bound(bytes.begin), cells_.lower_bound(bytes.end));
    cells_.emplace(bytes.begin, Cell{.end = bytes.end, .write = stamp, .reads = {}});
  }
  return found;
}

}  // namespace tessera::virtual_gpu
