// SPDX-License-Identifier: Apache-2.0
// The table grows with the words that are inserted, up to a bound; then new words replace others.
#include "inputs/tokenizers/word_cache.h"

#include <algorithm>
#include <utility>

namespace tessera {

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

std::span<const int32_t> WordCache::find_rare(std::string_view word, const Key& key) {
  for (size_t i = 0; i < kPlaces; ++i) {
    Entry* entry = &table_[place(key.hash, i)];
    if (entry->high == 0) break;
    if (!entry->is(key)) continue;
    if (i >= kPlaces / 2) {
      Entry* const nearer = &table_[place(key.hash, 1)];
      std::swap(*entry, *nearer);
      entry = nearer;
    }
    if (entry->count != 0) return std::span(entry->ids).first(static_cast<size_t>(entry->count));
    const int32_t* const kept = kept_.data() + entry->ids[0];
    const auto count = static_cast<size_t>(kept[0]), size = static_cast<size_t>(kept[1]);
    const auto* const bytes = reinterpret_cast<const char*>(kept + 2 + count);
    if (std::string_view(bytes, size) == word) return {kept + 2, count};
  }
  return {};
}

void WordCache::insert(std::string_view word, const Key& key, std::span<const int32_t> ids) {
  if (word.size() > kLongestWord || ids.empty()) return;
  if (kept_.size() > kMostKept) {
    kept_.clear();
    for (Entry& entry : table_)
      if (entry.count == 0) entry = {};
  }
  if (2 * ++inserted_ > table_.size() && bits_ < kMostBits) grow();
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

// The first line has the words that were used last.
void WordCache::put(const Entry& entry) {
  const uint64_t hash = with_hash({entry.low, entry.high}).hash;
  Entry moved = entry;
  for (size_t i = 0; i < kPlaces && moved.high != 0; ++i) std::swap(moved, table_[place(hash, i)]);
}

void WordCache::grow() {
  const Table old = std::exchange(table_, Table(2 * table_.size()));
  ++bits_;
  for (const Entry& entry : old)
    if (entry.high != 0) put(entry);
}

}  // namespace tessera
