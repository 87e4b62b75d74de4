// SPDX-License-Identifier: Apache-2.0
// The facts about launches that the overlap of communication needs: those found once per node, and
// the memory that each launch reads and writes, from which its dependencies follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/compile/memory/flat_program.h"

namespace tessera {

struct NodeFacts {
  bool is_collective = false, is_transfer = false, is_send = false, is_receive = false;
  // May run later than in the order, to not wait for a collective: an update, or a sum for the next
  // microbatch (sums_of_collectives()).
  bool may_wait = false;
  // Devices with other programs take part (core/ops/send.h): such launches keep their order.
  bool is_shared = false;
  bool is_inexpensive = false;
};

class LaunchFacts {
 public:
  // `transfers`: the mesh axes over which stages communicate. The program must outlive it.
  LaunchFacts(const FlatProgram& program, const std::vector<std::string>& transfers);

  const NodeFacts& of(const FlatLaunch& launch) const { return facts_[launch.flat_node]; }
  const NodeFacts& operator[](size_t i) const { return of(program_.launches[LaunchId(i)]); }

  // Returns the seconds of each launch.
  std::vector<double> seconds_of_launches(const LaunchSeconds& seconds_of) const;

 private:
  const FlatProgram& program_;
  IndexedVector<FlatNodeId, NodeFacts> facts_;
};

inline bool overlaps(FlatValue a, FlatValue b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// The memory of a launch, by root buffers.
struct Footprint {
  std::span<const FlatValue> reads, writes;
  BufferId scratch;
  uint64_t buffers = 0;  // Bit set of buffers, modulo 64: most pairs of launches share none.
};

// Returns whether `later` depends on `earlier`.
bool depends(const Footprint& later, const Footprint& earlier);

// Finds root buffers once, since all pairs of launches are compared. Only operands have footprints.
class Footprints {
 public:
  explicit Footprints(const FlatProgram& program);
  const Footprint& operator[](LaunchId launch) const { return footprints_[launch]; }

 private:
  FlatValues roots_;
  IndexedVector<LaunchId, Footprint> footprints_;
};

struct TimedGather {
  size_t first_use = 0;  // The position of the first launch that reads the result.
  double seconds = 0.0;  // Time of the collectives that make it.
};

// Another collective, which uses the links at a fixed time.
struct TimedCollective {
  size_t position = 0;
  double seconds = 0.0;
};

// Returns the position of the launch before which each gather starts. `kernels`: the seconds of
// each launch of the program as a kernel, 0 for a collective. Gathers are in the order of their
// first uses, and run one after another in this order; `others` are in the order of the program.
// Times are of one device whose kernels never wait. Measured times vary, so each gather is planned
// to take 1.5 times as long.
std::vector<size_t> latest_starts(const std::vector<double>& kernels,
                                  const std::vector<TimedGather>& gathers,
                                  const std::vector<TimedCollective>& others);

}  // namespace tessera
