// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tessera::virtual_gpu {
namespace {

// The gap between allocations, so that an access just past the end of one hits none.
constexpr uint64_t kGap = 4096;
constexpr uint64_t kAlignment = 512;

// Allocates large arrays in huge pages: mapping the workspaces of libraries in small pages takes
// longer than the tests that use them.
template <typename T>
std::unique_ptr<T[]> make_array(uint64_t bytes) {
  auto array = std::make_unique_for_overwrite<T[]>(bytes);
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t address = reinterpret_cast<uintptr_t>(array.get());
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage,
                  end = (address + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  return array;
}

}  // namespace

uint64_t Memory::allocate(int device, uint64_t bytes) {
  auto allocation = std::make_shared<Allocation>();
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->data = make_array<std::byte>(bytes);
  allocation->initialised = make_array<uint8_t>(bytes);
  std::memset(allocation->initialised.get(), 0, bytes);
  const std::scoped_lock lock(mutex_);
  allocation->address = next_;
  next_ += (bytes + kGap + kAlignment - 1) / kAlignment * kAlignment;
  live_.emplace(allocation->address, allocation);
  return allocation->address;
}

void Memory::release(uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) {
    throw Fault{
        released_.contains(address)
            ? fmt::format("address 0x{:x} is freed twice", address)
            : fmt::format("address 0x{:x} is freed, but no allocation begins there", address)};
  }
  released_.emplace(address, found->second->bytes);
  live_.erase(found);
}

Allocation& Memory::find(uint64_t address, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto next = live_.upper_bound(address);
  const uint64_t end = address + bytes;
  if (next != live_.begin()) {
    Allocation& allocation = *std::prev(next)->second;
    const uint64_t allocation_end = allocation.address + allocation.bytes;
    if (end <= allocation_end) return allocation;
    if (address < allocation_end + kGap) {
      throw Fault{fmt::format(
          "{} bytes at 0x{:x} are out of bounds: they end {} bytes after the allocation of {} "
          "bytes at 0x{:x}",
          bytes, address, end - allocation_end, allocation.bytes, allocation.address)};
    }
  }
  if (const auto after = released_.upper_bound(address); after != released_.begin()) {
    const auto& [begin, size] = *std::prev(after);
    if (address < begin + size) {
      throw Fault{fmt::format(
          "{} bytes at 0x{:x} are used after free: they lie in a released allocation of {} bytes "
          "at 0x{:x}",
          bytes, address, size, begin)};
    }
  }
  throw Fault{fmt::format("{} bytes at 0x{:x} were never allocated", bytes, address)};
}

uint64_t Memory::used(int device) const {
  const std::scoped_lock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [address, allocation] : live_)
    if (allocation->device == device) bytes += allocation->bytes;
  return bytes;
}

}  // namespace tessera::virtual_gpu
