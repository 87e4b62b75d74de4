// SPDX-License-Identifier: Apache-2.0
// Reads one object like a file, in blocks that are cached, and read ahead if they are read in
// order: how ByteFile opens a URL.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/storage/block_cache.h"
#include "core/io/storage/storage.h"

namespace tessera {
namespace {

constexpr int64_t kMostAhead = 4;

ObjectInfo existing_object(const std::string& url) {
  std::optional<ObjectInfo> object = storage_of(url).find(url);
  if (!object) fail("{}: no such file", url);
  return *object;
}

class RemoteFile final : public RemoteBytes {
 public:
  // Error if there is no such object.
  explicit RemoteFile(const std::string& url) : object_(existing_object(url)) {}

  int64_t size() const override { return object_.size; }
  size_t read_some_at(int64_t offset, std::span<std::byte> bytes) const override;
  void prefetch(int64_t offset, int64_t bytes) const override;

 private:
  BlockCache::Block block(int64_t number) const;

  ObjectInfo object_;
  mutable std::mutex mutex_;  // Guards what follows.
  mutable int64_t latest_ = -1;
  mutable BlockCache::Block latest_block_;
  mutable int64_t ahead_ = 1;  // Blocks to read ahead: more for each that was waited for.
};

BlockCache::Block RemoteFile::block(int64_t number) const {
  BlockCache& cache = BlockCache::instance();
  bool in_order = false;
  int64_t ahead = 0;
  {
    const std::lock_guard lock(mutex_);
    if (number == latest_) return latest_block_;
    in_order = number > 0 && number == latest_ + 1;
    if (in_order && !cache.is_ready(object_, number)) ahead_ = std::min(ahead_ + 1, kMostAhead);
    ahead = ahead_;
  }
  for (int64_t i = 1; in_order && i <= ahead; ++i) cache.prefetch(object_, number + i);
  BlockCache::Block found = cache.get(object_, number);
  if (in_order) cache.forget(object_, number - 1);  // Its memory is used for the next.
  const std::lock_guard lock(mutex_);
  latest_ = number;
  latest_block_ = found;
  return found;
}

size_t RemoteFile::read_some_at(int64_t offset, std::span<std::byte> bytes) const {
  if (offset >= object_.size || bytes.empty()) return 0;
  const int64_t number = offset / BlockCache::kBlockBytes;
  const BlockCache::Block found = block(number);
  const auto begin = static_cast<size_t>(offset - number * BlockCache::kBlockBytes);
  const size_t size = std::min(bytes.size(), found->size() - begin);
  std::memcpy(bytes.data(), found->data() + begin, size);
  return size;
}

void RemoteFile::prefetch(int64_t offset, int64_t bytes) const {
  const int64_t last = std::min(offset + bytes, object_.size) - 1;
  for (int64_t i = offset / BlockCache::kBlockBytes; i <= last / BlockCache::kBlockBytes; ++i)
    if (offset < object_.size) BlockCache::instance().prefetch(object_, i);
}

[[maybe_unused]] const bool kIsSet = [] {
  set_open_remote([](const std::string& url) -> std::shared_ptr<const RemoteBytes> {
    return std::make_shared<RemoteFile>(url);
  });
  return true;
}();

}  // namespace
}  // namespace tessera
