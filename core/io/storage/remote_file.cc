// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/remote_file.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/io/storage/block_cache.h"

namespace tessera {
namespace {

constexpr int64_t kBlocksAhead = 4;

ObjectInfo existing_object(const std::string& url) {
  std::optional<ObjectInfo> object = storage_of(url).find(url);
  if (!object) fail("{}: no such file", url);
  return *object;
}

}  // namespace

RemoteFile::RemoteFile(const std::string& url) : object_(existing_object(url)) {}

size_t RemoteFile::read_some_at(int64_t offset, std::span<std::byte> bytes) const {
  if (offset >= object_.size || bytes.empty()) return 0;
  const int64_t number = offset / BlockCache::kBlockBytes;
  const int64_t before = latest_.exchange(number);
  BlockCache& cache = BlockCache::instance();
  if (before == number - 1 && number > 0)
    for (int64_t i = 1; i <= kBlocksAhead; ++i) cache.prefetch(object_, number + i);
  const BlockCache::Block block = cache.get(object_, number);
  const auto begin = static_cast<size_t>(offset - number * BlockCache::kBlockBytes);
  const size_t size = std::min(bytes.size(), block->size() - begin);
  std::memcpy(bytes.data(), block->data() + begin, size);
  return size;
}

void RemoteFile::prefetch(int64_t offset, int64_t bytes) const {
  const int64_t last = std::min(offset + bytes, object_.size) - 1;
  for (int64_t i = offset / BlockCache::kBlockBytes; i <= last / BlockCache::kBlockBytes; ++i)
    if (offset < object_.size) BlockCache::instance().prefetch(object_, i);
}

}  // namespace tessera
