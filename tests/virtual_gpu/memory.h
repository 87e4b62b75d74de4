// SPDX-License-Identifier: Apache-2.0
// The memory of one virtual GPU: allocations at addresses that the host cannot use, with checks of
// bounds, lifetime and initialisation, and a log of which bytes a piece of work reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::virtual_gpu {

// The half-open range [begin, end).
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

// Counts of one kernel, over all lanes. Bytes: reads and writes, counted at each access; a copy
// from global to shared memory counts in both.
struct KernelCounts {
  uint64_t global_bytes = 0, shared_bytes = 0;
  uint64_t matrix_products = 0;  // mma instructions of warps.
  uint64_t barriers = 0;         // Completed barriers of blocks.
};

// The bytes that one kernel or copy read and wrote, as sorted, merged ranges.
struct AccessLog {
  std::vector<ByteRange> reads, writes;
  KernelCounts counts = {};
};

// An error of a kernel or a copy. The driver makes it a sticky CUresult and keeps the text
// (tessera_virtual_gpu_last_fault).
struct Fault {
  std::string text;
};

// One allocation. `initialised` has one byte per byte of memory.
struct Allocation {
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
  std::unique_ptr<uint8_t[]> initialised;  // 1: written since allocation.
  int device = 0;
};

// All GPUs of a process share one address space, as with unified addressing. Thread-safe.
class Memory {
 public:
  // Returns uninitialised memory, aligned to 512 bytes. Addresses are never reused, so that use
  // after free is found.
  uint64_t allocate(int device, uint64_t bytes);
  void release(uint64_t address);  // Throws Fault if no allocation begins there.
  // Returns the allocation that holds [address, address + bytes). Throws Fault: out of bounds (by
  // how many bytes, of which allocation), released earlier, or never allocated.
  Allocation& find(uint64_t address, uint64_t bytes);
  uint64_t used(int device) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Allocation>> live_;
  std::map<uint64_t, uint64_t> released_;  // Begin to bytes.
  uint64_t next_ = uint64_t{1} << 40;
};

}  // namespace tessera::virtual_gpu
