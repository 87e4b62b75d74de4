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
#include "tests/virtual_gpu/module.h"

namespace tessera::virtual_gpu {

// Returns null if the module has no such kernel.
const KernelInfo* find_kernel(const Module& module, std::string_view name);

// Runs all blocks. Returns the ranges of global memory that were read and written. Throws Fault.
AccessLog run_kernel(const Module& module, const KernelInfo& kernel, const Grid& grid,
                     std::span<const std::byte> parameters, Memory& memory,
                     const RunOptions& options);

}  // namespace tessera::virtual_gpu
