// SPDX-License-Identifier: Apache-2.0
// Blocks of objects in memory, at most 1/32 of it, and on the local disk, which all processes of a
// host share: $TESSERA_CACHE_DIR/blocks, at most $TESSERA_CACHE_BYTES (20e9). The oldest go first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/io/storage/storage.h"

namespace tessera {

class BlockCache {
 public:
  using Block = std::shared_ptr<const std::vector<std::byte>>;
  static constexpr int64_t kBlockBytes = int64_t{8} << 20;

  // The cache of this process.
  static BlockCache& instance();

  // Returns block `number` of an object, from the memory, the disk or the store. Threads that ask
  // for the block of another one's request wait for it. An object without an ETag is not stored.
  Block get(const ObjectInfo& object, int64_t number);
  // Starts to read a block in the background, unless it is in memory.
  void prefetch(const ObjectInfo& object, int64_t number);
  // Returns whether get() would not wait.
  bool is_ready(const ObjectInfo& object, int64_t number);
  // Drops a block from the memory.
  void forget(const ObjectInfo& object, int64_t number);

 private:
  using Key = std::pair<std::string, int64_t>;  // URL and version of an object; number.
  struct Entry {
    std::shared_future<Block> block;
    std::list<Key>::iterator used;
  };

  // Returns the block, begun by `launch` if nobody has asked for it.
  std::shared_future<Block> find_or_begin(const ObjectInfo& object, int64_t number,
                                          std::launch launch);

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::list<Key> used_;  // The latest first.
};

}  // namespace tessera
