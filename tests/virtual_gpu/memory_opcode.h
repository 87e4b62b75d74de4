// SPDX-License-Identifier: Apache-2.0
// Loads and stores of the virtual GPU, by their names in PTX, against bytes of the host.
#pragma once

#include <optional>
#include <string>

namespace tessera::virtual_gpu {

// "ld.global.nc.v4.u32": a load of four words from global memory.
struct MemoryOpcode {
  std::string name;
  bool is_load = false;
  std::string space;  // "global", "shared", "local", "param"; empty: generic.
  int count = 1;      // Of elements in a vector.
  char kind = 'u';    // Of an element: u, s, b or f.
  int bytes = 4;      // Of an element.

  // Of the register that holds an element, as in opcode_case.h; bytes have registers of 16 bits.
  char letter() const {
    if (kind == 'f') return bytes == 4 ? 'f' : 'g';
    return bytes == 8 ? 'd' : bytes == 4 ? 'r' : 'h';
  }
};

// Nothing if it is another instruction.
std::optional<MemoryOpcode> memory_opcode(const std::string& name);
// Runs it with many threads on values and alignments that differ, and compares all bytes.
void check(const MemoryOpcode& opcode);

}  // namespace tessera::virtual_gpu
