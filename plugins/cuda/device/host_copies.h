// SPDX-License-Identifier: Apache-2.0
// Copies between a GPU's memory and pageable memory of the host, which the driver would make
// through a small buffer of its own while the calling thread waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/devices/device.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// A part of a GPU's context. Any thread.
class HostCopies {
 public:
  static constexpr size_t kBuffer = 4 << 20;  // Bytes: a tile of a checkpoint.

  explicit HostCopies(Context& context);
  ~HostCopies();

  // Device::map() through two page-locked buffers: the GPU writes to one, while the host reads the
  // other. `use` sees the first of them if the bytes fit into it.
  void map(DeviceAddress memory, int64_t bytes, HostAccess access, const Device::UseBytes& use);

 private:
  class Ring;

  Context& context_;
  std::mutex mutex_;
  std::unique_ptr<Ring> free_;  // The one that is kept. A call during another makes its own.
};

}  // namespace tessera::cuda
