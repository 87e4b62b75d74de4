// SPDX-License-Identifier: Apache-2.0
#include "core/backend/backend.h"

namespace tessera {

void Device::map(DeviceAddress memory, int64_t bytes, HostAccess access, const UseBytes& use) {
  const auto size = static_cast<size_t>(bytes);
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> host(copy.get(), size);
  const std::unique_ptr<Stream> stream = make_stream(StreamUse::kCopy);
  if (access != HostAccess::kWrite) {
    stream->copy_to_host(host, memory);
    stream->synchronize();
  }
  use(host);
  if (access == HostAccess::kRead) return;
  stream->copy_from_host(memory, host);
  stream->synchronize();
}

}  // namespace tessera
