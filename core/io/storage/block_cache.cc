// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/block_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/io/storage/signature.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

size_t most_blocks_in_memory() {
  constexpr int64_t kLeast = 20, kShare = 32;
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return static_cast<size_t>(std::max(kLeast, memory / kShare / BlockCache::kBlockBytes));
}

// Returns a block of this size whose memory is used again by a later one: the system clears new
// pages, which takes as long as a fast network's transfer.
std::shared_ptr<std::vector<std::byte>> new_block(int64_t bytes) {
  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<std::vector<std::byte>>> free;
  };
  static auto* const pool = new Pool;  // Threads may outlive static objects.
  std::unique_ptr<std::vector<std::byte>> block;
  {
    const std::lock_guard lock(pool->mutex);
    if (!pool->free.empty()) {
      block = std::move(pool->free.back());
      pool->free.pop_back();
    }
  }
  if (!block) block = std::make_unique<std::vector<std::byte>>();
  block->resize(static_cast<size_t>(bytes));
  return {block.release(), [](std::vector<std::byte>* done) {
            std::unique_ptr<std::vector<std::byte>> owned(done);
            const std::lock_guard lock(pool->mutex);
            constexpr size_t kMostFree = 8;
            if (pool->free.size() < kMostFree) pool->free.push_back(std::move(owned));
          }};
}

int64_t most_cache_bytes() {
  constexpr double kDefault = 20e9;
  return static_cast<int64_t>(environment_number("TESSERA_CACHE_BYTES", kDefault, "bytes"));
}

std::string version_text(const ObjectInfo& object) {
  return fmt::format("{}\n{}\n{}", object.url, object.etag, object.size);
}

fs::path path_of_block(const ObjectInfo& object, int64_t number) {
  constexpr size_t kDigits = 40;
  return cache_directory() / "blocks" /
         fmt::format("{}.{}", sha256_hex(version_text(object)).substr(0, kDigits), number);
}

// Removes the oldest blocks if there are too many. One process at a time does.
void trim_blocks(const fs::path& directory, int64_t most) {
  const FileDescriptor lock(
      ::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.is_open()) return;
  struct Stored {
    fs::file_time_type time;
    int64_t bytes = 0;
    fs::path path;
  };
  std::vector<Stored> blocks;
  int64_t total = 0;
  std::error_code error;
  if (lock_file(lock.get(), LockWait::kNo) != LockResult::kHeldByAnother)
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename() == "lock") continue;
      std::error_code gone;  // Another process may remove it.
      const auto bytes = static_cast<int64_t>(entry->file_size(gone));
      const auto time = gone ? fs::file_time_type() : entry->last_write_time(gone);
      if (!gone) blocks.push_back({time, bytes, entry->path()});
      if (!gone) total += bytes;
    }
  std::ranges::sort(blocks, {}, &Stored::time);
  for (const Stored& block : blocks) {
    if (total <= most) break;
    fs::remove(block.path, error);
    total -= block.bytes;
  }
}

// A block's file is its bytes and their checksum: it may be short after a crash of the machine.
void store_block(const fs::path& path, const std::vector<std::byte>& bytes) try {
  constexpr int kTrimEvery = 4;
  static std::atomic<int> written = 0;
  const int64_t most = most_cache_bytes();
  if (most < BlockCache::kBlockBytes) return;
  fs::create_directories(path.parent_path());
  static std::atomic<int> number = 0;
  const fs::path place = fmt::format("{}.{}.{}", path.string(), ::getpid(), number++);
  {
    ByteFile file = ByteFile::create(place);
    const uint32_t checksum = crc32c(bytes);
    file.write_at(0, bytes);
    file.write_at(std::ssize(bytes), std::as_bytes(std::span(&checksum, 1)));
  }
  fs::rename(place, path);
  if (written++ % kTrimEvery == 0)
    trim_blocks(path.parent_path(),
                std::max<int64_t>(0, most - kTrimEvery * BlockCache::kBlockBytes));
} catch (const std::exception&) {  // A full disk, say: the cache only saves time.
}

BlockCache::Block load_block(const fs::path& path, int64_t bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return nullptr;
  uint32_t checksum = 0;
  const auto block = new_block(bytes);
  try {
    const ByteFile file = ByteFile::open(path);
    if (file.size() != bytes + static_cast<int64_t>(sizeof checksum)) return nullptr;
    file.read_at(0, *block);
    file.read_at(bytes, std::as_writable_bytes(std::span(&checksum, 1)));
  } catch (const Error&) {
    return nullptr;
  }
  if (crc32c(*block) != checksum) return nullptr;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // The last use.
  return block;
}

BlockCache::Block read_block(const ObjectInfo& object, int64_t number) {
  const int64_t begin = number * BlockCache::kBlockBytes;
  const int64_t bytes = std::min(BlockCache::kBlockBytes, object.size - begin);
  const fs::path path = path_of_block(object, number);
  if (!object.etag.empty())
    if (BlockCache::Block known = load_block(path, bytes)) return known;
  const auto block = new_block(bytes);
  storage_of(object.url).read(object, begin, *block);
  if (!object.etag.empty()) store_block(path, *block);
  return block;
}

}  // namespace

BlockCache& BlockCache::instance() {
  static auto* const cache = new BlockCache;  // Threads may outlive static objects.
  return *cache;
}

std::shared_future<BlockCache::Block> BlockCache::find_or_begin(const ObjectInfo& object,
                                                                int64_t number,
                                                                std::launch launch) {
  const Key key(version_text(object), number);
  std::shared_future<Block> removed;  // Destroyed without the lock: it may have to be waited for.
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    used_.splice(used_.begin(), used_, found->second.used);
    return found->second.block;
  }
  static const size_t kMostBlocks = most_blocks_in_memory();
  if (entries_.size() >= kMostBlocks) {
    const auto oldest = entries_.find(used_.back());
    removed = std::move(oldest->second.block);
    entries_.erase(oldest);
    used_.pop_back();
  }
  used_.push_front(key);
  std::shared_future<Block> block =
      std::async(launch, [object, number] { return read_block(object, number); }).share();
  entries_.emplace(key, Entry{block, used_.begin()});
  return block;
}

BlockCache::Block BlockCache::get(const ObjectInfo& object, int64_t number) {
  const std::shared_future<Block> block = find_or_begin(object, number, std::launch::deferred);
  try {
    return block.get();
  } catch (...) {  // The next request tries again.
    forget(object, number);
    throw;
  }
}

bool BlockCache::is_ready(const ObjectInfo& object, int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(Key(version_text(object), number));
  return found != entries_.end() &&
         found->second.block.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void BlockCache::forget(const ObjectInfo& object, int64_t number) {
  std::shared_future<Block> removed;  // Destroyed without the lock, as above.
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(Key(version_text(object), number));
  if (found == entries_.end()) return;
  removed = std::move(found->second.block);
  used_.erase(found->second.used);
  entries_.erase(found);
}

void BlockCache::prefetch(const ObjectInfo& object, int64_t number) {
  if (number * kBlockBytes >= object.size) return;
  try {
    find_or_begin(object, number, std::launch::async);
  } catch (const std::system_error&) {  // No more threads: it is read when it is needed.
  }
}

}  // namespace tessera
