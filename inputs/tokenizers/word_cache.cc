// SPDX-License-Identifier: Apache-2.0
// The table grows with the words that are inserted, up to a bound; then new words replace others.
#include "inputs/tokenizers/word_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace tessera {

WordCache::Table WordCache::allocate(size_t entries) {
  const size_t bytes = entries * sizeof(Entry);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // Before the first write, which decides.
  return Table(static_cast<Entry*>(memory), Unmap{bytes});
}

void WordCache::Unmap::operator()(Entry* entries) const { ::munmap(entries, bytes); }

WordCache::Key WordCache::long_key(std::string_view word) {
  Key key{word.size(), 0, 0};
  for (uint64_t bytes = 0; !word.empty(); bytes = 0) {
    const size_t size = std::min(sizeof(bytes), word.size());
    std::memcpy(&bytes, word.data(), size);
    key.low = (key.low ^ bytes) * 0x9e3779b97f4a7c15u;
    key.low ^= key.low >> 32;
    key.high = (key.high + bytes) * 0xd6e8feb86659fd93u;
    key.high ^= key.high >> 29;
    word.remove_prefix(size);
  }
  key.high |= kLong;
  return with_hash(key);
}

std::span<const int32_t> WordCache::find_kept(std::string_view word, const Key& key) const {
  const Entry* const entry = entry_of(key);
  if (!entry->is(key) || entry->count != 0) return {};
  const int32_t* const kept = kept_.data() + entry->ids[0];
  const auto count = static_cast<size_t>(kept[0]), size = static_cast<size_t>(kept[1]);
  const auto* const bytes = reinterpret_cast<const char*>(kept + 2 + count);
  if (std::string_view(bytes, size) != word) return {};
  return {kept + 2, count};
}

void WordCache::insert(std::string_view word, const Key& key, std::span<const int32_t> ids) {
  if (word.size() > kLongestWord || ids.empty()) return;
  if (kept_.size() > kMostKept) {
    kept_.clear();
    for (Entry& entry : std::span(table_.get(), size_t{1} << bits_))
      if (entry.count == 0) entry = {};
  }
  if (2 * ++inserted_ > size_t{1} << bits_ && bits_ < kMostBits) grow();
  Entry entry{key.low, key.high};
  if (word.size() <= kShortWord && ids.size() <= kMostIds) {
    entry.count = static_cast<int32_t>(ids.size());
    std::ranges::copy(ids, entry.ids.begin());
  } else {
    entry.ids[0] = static_cast<int32_t>(kept_.size());
    kept_.push_back(static_cast<int32_t>(ids.size()));
    kept_.push_back(static_cast<int32_t>(word.size()));
    kept_.insert(kept_.end(), ids.begin(), ids.end());
    const size_t begin = kept_.size();
    kept_.resize(begin + (word.size() + sizeof(int32_t) - 1) / sizeof(int32_t));
    std::memcpy(kept_.data() + begin, word.data(), word.size());
  }
  put(entry);
}

// The older entry of a full pair goes.
void WordCache::put(const Entry& entry) {
  Entry* const pair = pair_of(with_hash({entry.low, entry.high}).hash);
  if (pair[0].high != 0) pair[1] = pair[0];
  pair[0] = entry;
}

void WordCache::grow() {
  const Table old = std::exchange(table_, allocate(size_t{2} << bits_));
  const std::span entries(old.get(), size_t{1} << bits_);
  ++bits_;
  for (const Entry& entry : entries)
    if (entry.high != 0) put(entry);
}

}  // namespace tessera
