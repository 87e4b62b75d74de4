// SPDX-License-Identifier: Apache-2.0
// The container format of nvcc for the code of a file: PTX, and machine code of architectures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::virtual_gpu {

inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// The header of a container. Entries follow it.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct FatbinEntry {
  static constexpr uint16_t kPtx = 1, kMachineCode = 2;
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;  // 0: not compressed.
  uint32_t options;
  uint16_t minor, major;
  uint32_t architecture;  // 80 for sm_80.
};
static_assert(sizeof(FatbinHeader) == 16 && sizeof(FatbinEntry) == 32);

// Calls use(entry, its bytes) for each entry.
template <typename Use>
void for_each_entry(const void* fatbin, const Use& use) {
  FatbinHeader header;
  std::memcpy(&header, fatbin, sizeof(header));
  const char* at = static_cast<const char*>(fatbin) + header.header_bytes;
  const char* const end = at + header.bytes;
  while (at < end) {
    FatbinEntry entry;
    std::memcpy(&entry, at, sizeof(entry));
    use(entry, std::string_view(at + entry.header_bytes, entry.bytes));
    at += entry.header_bytes + entry.bytes;
  }
}

}  // namespace tessera::virtual_gpu
