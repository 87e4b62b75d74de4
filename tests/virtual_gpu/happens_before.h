// SPDX-License-Identifier: Apache-2.0
// Order of asynchronous work by vector clocks, and conflicts between unordered accesses (Flanagan
// and Freund, FastTrack, PLDI 2009). Each stream, and each chain of nodes of a graph, is a
// component of the clocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

// By component, the time up to which its work is known to be complete.
class Clock {
 public:
  uint64_t operator[](size_t component) const {
    return component < times_.size() ? times_[component] : 0;
  }
  void join(const Clock& other);
  void set(size_t component, uint64_t time);

 private:
  std::vector<uint64_t> times_;
};

// Identifies a piece of work: its component, time and name.
struct Stamp {
  size_t component = 0;
  uint64_t time = 0;
  std::shared_ptr<const std::string> name;

  bool is_before(const Clock& clock) const { return clock[component] >= time; }
};

// Two unordered accesses of the same bytes, at least one of them a write.
struct UnorderedAccess {
  ByteRange bytes;
  Stamp earlier;
  bool earlier_writes = false, later_writes = false;
};

// The last write of each byte, and the reads since then. Work is added in topological order; two
// accesses are in conflict unless the clock of the later one includes the earlier one.
class AccessHistory {
 public:
  std::optional<UnorderedAccess> add(const AccessLog& log, const Stamp& stamp, const Clock& clock);
  // Returns the conflict that a write of these bytes with this clock would have.
  std::optional<UnorderedAccess> conflict(ByteRange bytes, const Clock& clock) const;
  void clear() { cells_.clear(); }

 private:
  struct Cell {
    uint64_t end = 0;
    std::optional<Stamp> write;
    std::vector<Stamp> reads;  // The last read of each component.
  };

  void split_at(uint64_t address);
  static std::optional<Stamp> unordered_read(const Cell& cell, const Clock& clock);
  std::optional<UnorderedAccess> read(ByteRange bytes, const Stamp& stamp, const Clock& clock);

  std::map<uint64_t, Cell> cells_;  // By begin; disjoint.
};

}  // namespace tessera::virtual_gpu
