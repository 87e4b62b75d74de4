// SPDX-License-Identifier: Apache-2.0
// The state of a running kernel: its launch, one of its blocks, and the block's warps.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/virtual_gpu/module.h"
#include "tests/virtual_gpu/races.h"

namespace tessera::virtual_gpu {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffff;
using Row = std::array<uint64_t, kLanes>;

// Generic addresses below all allocations: windows onto the other spaces.
inline constexpr uint64_t kWindow = uint64_t{1} << 32;
inline constexpr uint64_t kSharedWindow = kWindow, kLocalWindow = 2 * kWindow,
                          kParameterWindow = 3 * kWindow;

class Block;

// Modes of barriers: how the predicates of all threads are reduced.
inline constexpr uint32_t kBarrierSync = 0, kBarrierArrive = 1, kBarrierCount = 2, kBarrierAnd = 3,
                          kBarrierOr = 4;

// Returns the instruction's PTX text, with single spaces.
std::string text_of(const Kernel& kernel, const Instruction& instruction);

// The lanes that are at one instruction.
struct Fragment {
  int pc = 0;
  uint32_t mask = 0;
  bool blocked = false;
};

// A copy of cp.async, from global to shared memory.
struct PendingCopy {
  uint64_t to = 0, from = 0;
  uint32_t bytes = 0, filled = 0;  // The first `filled` are copied, the others zeroed.
  uint64_t group = 0;              // Number of groups committed before it.
  bool moved = false;              // Copied; not yet visible to the program.
};
// The pending copies of one thread.
struct CopyQueue {
  std::vector<PendingCopy> copies;
  uint64_t groups = 0;  // Number of committed groups.
};

class Warp {
 public:
  Warp(Block& block, int index, const Kernel& kernel);
  void start(uint32_t lanes);
  // Runs until every lane has ended or waits. Returns false if no lane could run.
  bool run();
  bool done() const { return fragments.empty(); }
  void pass_barrier(uint64_t result);

  const Row& row(Operand o) const { return o >= 0 ? registers[o] : (*constants)[~o]; }
  // Returns the predicate as a mask of lanes.
  uint32_t predicate(Operand o) const {
    return o >= 0 ? static_cast<uint32_t>(registers[o][0]) : (*constants)[~o][0] ? kAllLanes : 0;
  }
  void write_predicate(Operand o, uint32_t mask, uint32_t value) {
    registers[o][0] = (registers[o][0] & ~mask) | (value & mask);
  }
  template <typename F>
  void write(Operand o, uint32_t mask, F value_of_lane) {
    Row& to = registers[o];
    if (mask == kAllLanes) {
      Row result;  // The inputs may be the same row.
      for (int lane = 0; lane < kLanes; ++lane) result[lane] = value_of_lane(lane);
      to = result;
    } else {
      for (uint32_t m = mask; m; m &= m - 1) {
        const int lane = std::countr_zero(m);
        to[lane] = value_of_lane(lane);
      }
    }
  }
  [[noreturn]] void fault(const Instruction& i, int lane, const std::string& what) const;
  int thread(int lane) const { return index * kLanes + lane; }

  Block& block;
  const int index;
  const Kernel& kernel;
  const std::vector<Row>* constants;
  std::unique_ptr<Row[]> registers;  // Not initialised.
  std::vector<uint32_t> defined;     // Lanes of each row that were written.
  std::vector<Fragment> fragments;   // Sorted by program counter.
  uint32_t lanes = 0;                // Lanes that have not ended.
  std::array<CopyQueue, kLanes> copies;

 private:
  void execute(const Instruction& i, uint32_t mask);
  void advance(size_t number, int limit);
  void pause(Fragment& fragment, int pc) const;
  void transfer(size_t number, const Instruction& i, uint32_t active);
  void end_lanes(const Instruction& i, uint32_t mask);
  bool ready_to_meet(const Instruction& i, uint32_t active) const;
  void reach_barrier(Fragment fragment, const Instruction& i);
  void insert(Fragment fragment);
  void check_blocked() const;
  uint32_t guard(const Instruction& i, uint32_t mask) const;
  uint32_t defined_selection(const Instruction& i) const;

  uint32_t present_ = 0;  // Lanes at the start.
};

// The global memory of one launch, with shadows of its allocations.
class GlobalMemory {
 public:
  GlobalMemory(Memory& memory, bool shadowed) : memory_(memory), shadowed_(shadowed) {}
  struct Part {
    Allocation* allocation = nullptr;
    Shadow* shadow = nullptr;
  };
  // The allocation that holds the bytes. Throws Fault.
  const Part& find(uint64_t address, uint32_t bytes) {
    if (last_.allocation && address >= last_.allocation->address &&
        address + bytes <= last_.allocation->address + last_.allocation->bytes)
      return last_;
    return look_up(address, bytes);
  }
  // Returns the recently found allocation that holds [begin, end); null if there is none.
  const Part* known(uint64_t begin, uint64_t end) {
    for (size_t k = 0; k < recent_.size(); ++k) {
      const Part& part = recent_[k];
      if (part.allocation && begin >= part.allocation->address &&
          end <= part.allocation->address + part.allocation->bytes)
        return &part;
    }
    return nullptr;
  }
  AccessLog log() const;
  void renumber(uint32_t block_begin);

 private:
  const Part& look_up(uint64_t address, uint32_t bytes);
  Memory& memory_;
  bool shadowed_;
  Part last_;
  std::array<Part, 4> recent_;
  size_t next_ = 0;  // The part of recent_ to replace next.
  std::map<uint64_t, std::pair<Allocation*, std::unique_ptr<Shadow>>> parts_;
};

struct Launch {
  const Module& module;
  const Kernel& kernel;
  const Grid& grid;
  std::span<const std::byte> parameters;
  const RunOptions& options;
  GlobalMemory global;
  std::vector<Row> constants;
  std::mt19937_64 random;
  Clocks clocks;
  uint64_t instructions = 0;  // Executed by warps.
  uint64_t pause_at = 0;      // Number of instructions at which another block runs.
  bool interleaved = false, paused = false;
  KernelCounts counts = {};
};

// The state of one barrier.
struct Barrier {
  uint32_t warps = 0;     // Warps that arrived.
  uint32_t waiting = 0;   // Warps that wait, a subset of `warps`.
  uint32_t threads = 0;   // Threads that arrived.
  uint32_t expected = 0;  // 0: all threads of the block.
  const Instruction* instruction = nullptr;
  uint32_t votes = 0;  // Threads with a true predicate (barrier.red).
};

class Block {
 public:
  explicit Block(Launch& launch);
  void begin(std::array<uint32_t, 3> position);
  // Runs until the block ends or the launch is paused. Returns whether the block has ended.
  bool go_on();

  // Checks one access of one lane. Returns the host address of its bytes. Throws Fault.
  std::byte* access(const Warp& warp, const Instruction& i, int lane, Space space, uint64_t address,
                    uint32_t bytes, Access kind);
  // Checks the accesses of all lanes of the mask. If all are valid, sets `host` to the host address
  // of GPU address 0. Returns false otherwise; then call access() for each lane.
  template <bool Writes>
  bool access_row(const Warp& warp, Space space, const Row& addresses, uint64_t offset,
                  uint32_t mask, uint32_t bytes, uintptr_t& host);
  // Returns the host address in shared memory without checks, for bytes that access() has checked.
  std::byte* shared_bytes(uint64_t address) { return shared_.get() + address; }
  void arrive(Warp& warp, const Instruction& i, uint32_t id, uint32_t expected, bool waits,
              uint32_t votes);
  std::string position() const;

  Launch& launch;
  std::array<uint32_t, 3> at{};
  const uint32_t threads;
  std::vector<std::unique_ptr<Warp>> warps;

 private:
  void release(Barrier& barrier);
  [[noreturn]] void fail_blocked();
  std::byte* access_global(const Warp& warp, const Instruction& i, int lane, uint64_t address,
                           uint32_t bytes, Access kind);
  std::byte* access_shared(const Warp& warp, const Instruction& i, int lane, uint64_t address,
                           uint32_t bytes, Access kind);
  template <bool Writes, bool Global>
  static bool touch_row(Shadow& shadow, const Warp& warp, const Row& addresses, uint64_t offset,
                        uint32_t mask, uint32_t bytes, uint8_t* initialised);
  std::byte* access_private(const Warp& warp, const Instruction& i, int lane, Space space,
                            uint64_t address, uint32_t bytes);

  BlockOrder order_;
  uint32_t shared_bytes_;
  std::unique_ptr<std::byte[]> shared_;
  Shadow shared_shadow_;
  std::vector<std::byte> local_;
  std::array<Barrier, 16> barriers_{};
};

// Calls f(lane) for each lane of the mask.
template <typename F>
void for_lanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

}  // namespace tessera::virtual_gpu
