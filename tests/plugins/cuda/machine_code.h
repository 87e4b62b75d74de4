// SPDX-License-Identifier: Apache-2.0
// What the machine code of kernels uses: registers, memory and instructions, read from the ELF
// files that nvcc puts into a fatbin, so that no tool of the CUDA toolkit is needed. NVIDIA
// documents neither the sections nor the encoding of instructions. Both were compared with the
// output of cuobjdump 13.5 for all kernels and the architectures sm_80 to sm_120; a test compares
// again where cuobjdump is installed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::cuda {

// One kernel, compiled for one architecture. Counts are of instructions in the code, not of those
// that run.
struct MachineCode {
  int registers = 0;
  int stack_bytes = 0;   // Of a thread: spilled registers, and arrays with indices of run time.
  int shared_bytes = 0;  // Static, and what the architecture reserves.
  int threads = 0;       // Of a block, at most: __launch_bounds__.

  int loads = 0, wide_loads = 0;    // Of global memory, cp.async included; of 128 bits.
  int stores = 0, wide_stores = 0;  // To global memory.
  int local = 0;                    // Loads and stores of the stack.
  int tensor = 0;                   // HMMA: a warp's products on tensor cores.
  int exponentials = 0, reciprocals = 0;
  // Of f32 to integers. A division of integers is a reciprocal and one of these.
  int conversions = 0;

  bool operator==(const MachineCode&) const = default;
};

// By kernel, then by architecture (80 for sm_80, 90 for sm_90a).
using MachineCodes = std::map<std::string, std::map<int, MachineCode>>;
void add_machine_code(const unsigned char* fatbin, MachineCodes& codes);

// "13.0.88", from the notes in a fatbin's machine code.
std::string compiler_version(const unsigned char* fatbin);

// Blocks of so many threads that a multiprocessor of an H100 or H200 (sm_90) holds at a time.
int resident_blocks(const MachineCode& code, int threads, int dynamic_shared_bytes);

}  // namespace tessera::cuda
