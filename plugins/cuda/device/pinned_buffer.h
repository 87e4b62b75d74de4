// SPDX-License-Identifier: Apache-2.0
// Host memory that a GPU reads and writes.
#pragma once

#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// Page-locked host memory, which a GPU's streams read and write beside the host's work. The context
// is current where it is made.
class PinnedBuffer {
 public:
  PinnedBuffer(Context& context, size_t bytes) : context_(context), bytes_(bytes) {
    context.check(context.driver().cuMemHostAlloc(&memory_, bytes, 0),
                  "allocating page-locked host memory");
  }
  ~PinnedBuffer() {
    if (context_.can_destroy()) context_.driver().cuMemFreeHost(memory_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  Context& context_;
  void* memory_ = nullptr;
  size_t bytes_;
};

}  // namespace tessera::cuda
