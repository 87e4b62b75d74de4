// SPDX-License-Identifier: Apache-2.0
// Order between pieces of asynchronous work, by vector clocks, and the accesses that it must order
// (Flanagan and Freund, FastTrack, PLDI 2009). Each stream is a component of the clocks, as is each
// chain of nodes of a graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

// For each component, how much of its work is known to be done.
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

// A piece of work as later work sees it.
struct Stamp {
  size_t component = 0;
  uint64_t time = 0;
  std::shared_ptr<const std::string> name;

  bool is_before(const Clock& clock) const { return clock[component] >= time; }
};

// Two accesses of the same bytes, at least one writing, that nothing orders.
struct UnorderedAccess {
  ByteRange bytes;
  Stamp earlier;
  bool earlier_writes = false, later_writes = false;
};

// The last write of each byte, and the reads since then. Work is added in an order in which it can
// run, so that two accesses are in conflict unless the later one's clock has the earlier one.
class AccessHistory {
 public:
  std::optional<UnorderedAccess> add(const AccessLog& log, const Stamp& stamp, const Clock& clock);
  // What a write of these bytes that knows `clock` would be in conflict with.
  std::optional<UnorderedAccess> conflict(ByteRange bytes, const Clock& clock) const;
  void clear() { cells_.clear(); }

 private:
  struct Cell {
    uint64_t end = 0;
    std::optional<Stamp> write;
    std::vector<Stamp> reads;  // The last of each component.
  };

  void split_at(uint64_t address);
  static std::optional<Stamp> unordered_read(const Cell& cell, const Clock& clock);
  std::optional<UnorderedAccess> read(ByteRange bytes, const Stamp& stamp, const Clock& clock);

  std::map<uint64_t, Cell> cells_;  // By begin; disjoint.
};

}  // namespace tessera::virtual_gpu
