// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/host_copies.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "plugins/cuda/device/pinned_buffer.h"
#include "plugins/cuda/device/stream.h"

namespace tessera::cuda {

class HostCopies::Ring {
 public:
  explicit Ring(Context& context)
      : buffers_{PinnedBuffer(context, kBuffer), PinnedBuffer(context, kBuffer)},
        copied_{make_cuda_event(context), make_cuda_event(context)},
        stream_(make_cuda_stream(context, StreamUse::kCopy)) {}

  std::byte* buffer(size_t chunk) const {
    return static_cast<std::byte*>(buffers_[chunk % 2].data());
  }

  void copy_to_host(std::span<std::byte> to, DeviceAddress from) {
    const size_t chunks = (to.size() + kBuffer - 1) / kBuffer;
    for (size_t i = 0; i <= chunks; ++i) {
      if (i < chunks) {
        const size_t begin = i * kBuffer, size = std::min(kBuffer, to.size() - begin);
        stream_->copy_to_host({buffer(i), size}, from + static_cast<int64_t>(begin));
        stream_->record(*copied_[i % 2]);
      }
      if (i == 0) continue;
      stream_->synchronize(*copied_[(i - 1) % 2]);
      const size_t begin = (i - 1) * kBuffer, size = std::min(kBuffer, to.size() - begin);
      if (to.data() != buffer(0)) std::memcpy(to.data() + begin, buffer(i - 1), size);
    }
    stream_->synchronize();
  }

  // The stream copies to page-locked memory of its own, which it can use again when the copy from
  // there is done.
  void copy_from_host(DeviceAddress to, std::span<const std::byte> from) {
    for (size_t i = 0; i * kBuffer < from.size(); ++i) {
      if (i >= 2) stream_->synchronize(*copied_[i % 2]);
      const size_t begin = i * kBuffer, size = std::min(kBuffer, from.size() - begin);
      stream_->copy_from_host(to + static_cast<int64_t>(begin), from.subspan(begin, size));
      stream_->record(*copied_[i % 2]);
    }
    stream_->synchronize();
  }

 private:
  PinnedBuffer buffers_[2];
  std::unique_ptr<Event> copied_[2];
  std::unique_ptr<Stream> stream_;  // Whose copies end before the buffers do.
};

HostCopies::HostCopies(Context& context) : context_(context) {}
HostCopies::~HostCopies() = default;

void HostCopies::map(DeviceAddress memory, int64_t bytes, HostAccess access,
                     const Device::UseBytes& use) {
  std::unique_ptr<Ring> ring;
  {
    const std::lock_guard lock(mutex_);
    ring = std::move(free_);
  }
  if (!ring) ring = std::make_unique<Ring>(context_);
  const auto size = static_cast<size_t>(bytes);
  std::unique_ptr<std::byte[]> copy;
  if (size > kBuffer) copy = std::make_unique_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> host(copy ? copy.get() : ring->buffer(0), size);
  if (access != HostAccess::kWrite) ring->copy_to_host(host, memory);
  use(host);
  if (access != HostAccess::kRead) ring->copy_from_host(memory, host);
  const std::lock_guard lock(mutex_);
  free_ = std::move(ring);
}

}  // namespace tessera::cuda
