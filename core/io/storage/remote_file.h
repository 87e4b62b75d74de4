// SPDX-License-Identifier: Apache-2.0
// Reads one object like a file, in blocks that are cached, and read ahead if they are read in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "core/io/file.h"
#include "core/io/storage/block_cache.h"
#include "core/io/storage/storage.h"

namespace tessera {

class RemoteFile final : public RemoteBytes {
 public:
  explicit RemoteFile(const std::string& url);  // Error if there is no such object.

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

}  // namespace tessera
