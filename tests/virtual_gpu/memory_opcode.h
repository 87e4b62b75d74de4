// SPDX-License-Identifier: Apache-2.0
// Tests loads and stores of the virtual GPU, by their names in PTX, against bytes of the host.
#pragma once

#include <optional>
#include <string>

namespace tessera::virtual_gpu {

// A load or store. "ld.global.nc.v4.u32" loads four words from global memory.
struct MemoryOpcode {
  std::string name;
  bool is_load = false;
  std::string space;  // "global", "shared", "local", "param"; empty: generic.
  int count = 1;      // Elements in a vector.
  char kind = 'u';    // Kind of element: u, s, b or f.
  int bytes = 4;      // Bytes per element.

  // The letter of an element's register (opcode_case.h). Elements of 8 bits use 16-bit registers.
  char letter() const {
    if (kind == 'f') return bytes == 4 ? 'f' : 'g';
    return bytes == 8 ? 'd' : bytes == 4 ? 'r' : 'h';
  }
};

// Returns nullopt for other instructions.
std::optional<MemoryOpcode> memory_opcode(const std::string& name);
// Runs it with many threads on different values and alignments, and compares all bytes.
void check(const MemoryOpcode& opcode);

}  // namespace tessera::virtual_gpu
