// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, with detection of host accesses while a copy uses it. Each allocation is
// mapped twice. The host's view is protected while a copy writes, so that a read before the host
// has waited is found; copies use the second view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* host() const { return host_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* address) const {
    return address >= host_ && address < host_ + mapped_bytes_;
  }
  std::byte* device_view(const void* host) const {
    return device_ + (static_cast<const std::byte*>(host) - host_);
  }
  // Protects or unprotects the pages that lie entirely in [begin, begin + bytes).
  void set_open(const std::byte* begin, size_t bytes, bool open) const;

  bool released = false;

 private:
  size_t bytes_, mapped_bytes_;
  std::byte *host_ = nullptr, *device_ = nullptr;
};

// The host memory of a copy: none, bytes that it reads, or bytes that it writes.
struct HostBytes {
  enum class Use { kNone, kRead, kWrite };
  Use use = Use::kNone;
  std::byte* begin = nullptr;
  size_t bytes = 0;
  std::shared_ptr<PinnedMemory> memory;

  ByteRange range() const {
    const auto address = reinterpret_cast<uint64_t>(begin);
    return {address, address + bytes};
  }
  bool overlaps(const HostBytes& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
  uint64_t checksum() const;
};

// Calls `found(address)` at each segmentation fault of the host. If it returns true (protected
// memory), the access is repeated; otherwise the previous handler gets the fault.
void watch_closed_memory(bool (*found)(const void* address));

}  // namespace tessera::virtual_gpu
