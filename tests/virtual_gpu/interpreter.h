// SPDX-License-Identifier: Apache-2.0
// Runs kernels from the PTX that nvcc emits. A warp executes one instruction for all of its active
// lanes; diverged lanes run by the lowest program counter. Checks: bounds, uninitialised reads
// (global, shared), misalignment, races in shared and global memory within a launch, barriers that
// not all threads reach, asynchronous copies in flight. Faults name kernel, source file and line
// (.loc), block and thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

class Module;  // Parsed PTX.

// Throws Fault with the line of the text for what is not understood.
std::shared_ptr<const Module> parse_ptx(std::string_view text);

struct KernelInfo {
  std::string name;
  std::vector<std::pair<int, int>> parameters;  // Offset and bytes of each.
  int static_shared_bytes = 0;
  int registers = 0;
};
// Null if the module has no such kernel.
const KernelInfo* find_kernel(const Module& module, std::string_view name);

struct Grid {
  std::array<uint32_t, 3> blocks = {1, 1, 1};
  std::array<uint32_t, 3> threads = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
};

struct RunOptions {
  uint64_t seed = 0;  // Order of blocks and warps; 0: ascending.
  bool check_races = true;
  bool log_accesses = true;
  int device = 0;
  uint64_t max_instructions = uint64_t{1} << 32;  // Of warps; more: it waits without end.
};

// Runs all blocks; returns what was read and written in global memory. Throws Fault.
AccessLog run_kernel(const Module& module, const KernelInfo& kernel, const Grid& grid,
                     std::span<const std::byte> parameters, Memory& memory,
                     const RunOptions& options);

}  // namespace tessera::virtual_gpu
