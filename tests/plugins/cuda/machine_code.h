// SPDX-License-Identifier: Apache-2.0
// Registers, memory and instructions of the machine code of kernels, read from the ELF files in a
// fatbin of nvcc, so that no tool of the CUDA toolkit is needed. NVIDIA documents neither the
// sections nor the encoding of instructions. Both were compared with the output of cuobjdump 13.5
// for all kernels and the architectures sm_80 to sm_120; a test repeats this if cuobjdump is
// installed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::cuda {

// The machine code of one kernel for one architecture. Instructions are counted as they stand in
// the code, once each, however often they run.
struct MachineCode {
  int registers = 0;
  int stack_bytes = 0;   // Per thread: spilled registers and dynamically indexed arrays.
  int shared_bytes = 0;  // Static, and reserved by the architecture.
  int threads = 0;       // Most threads per block (__launch_bounds__).

  int loads = 0, wide_loads = 0;    // From global memory, with cp.async. Wide: 128 bits.
  int stores = 0, wide_stores = 0;  // To global memory.
  int local = 0;                    // Loads and stores of the stack.
  int tensor = 0;                   // HMMA: products on tensor cores.
  int exponentials = 0, reciprocals = 0;
  // Conversions of f32 to integers. A division of integers has a reciprocal and a conversion.
  int conversions = 0;

  bool operator==(const MachineCode&) const = default;
};

// By kernel, then by architecture (80 for sm_80, 90 for sm_90a).
using MachineCodes = std::map<std::string, std::map<int, MachineCode>>;
void add_machine_code(const unsigned char* fatbin, MachineCodes& codes);

// Returns the version of nvcc ("13.0.88") from the notes in a fatbin's machine code.
std::string compiler_version(const unsigned char* fatbin);

// Returns how many blocks of `threads` threads are resident on a multiprocessor of an H100 or H200
// (sm_90).
int resident_blocks(const MachineCode& code, int threads, int dynamic_shared_bytes);

}  // namespace tessera::cuda
