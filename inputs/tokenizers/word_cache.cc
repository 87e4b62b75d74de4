// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/word_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace tessera {

// Large pages, so that an access rarely waits for the translation of its address. Untouched ones
// take no memory.
WordCache::Table WordCache::allocate() {
  constexpr size_t kBytes = sizeof(Entry) << kBits;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, kBytes, MADV_HUGEPAGE);
  return Table(static_cast<Entry*>(memory));
}

void WordCache::Unmap::operator()(Entry* entries) const {
  ::munmap(entries, sizeof(Entry) << kBits);
}

WordCache::Key WordCache::long_key(std::string_view word) {
  uint64_t low = word.size(), high = 0;
  for (uint64_t bytes = 0; !word.empty(); bytes = 0) {
    const size_t size = std::min(sizeof(bytes), word.size());
    std::memcpy(&bytes, word.data(), size);
    low = (low ^ bytes) * 0x9e3779b97f4a7c15u;
    low ^= low >> 32;
    high = (high + bytes) * 0xd6e8feb86659fd93u;
    high ^= high >> 29;
    word.remove_prefix(size);
  }
  return with_hash(low, high | uint64_t{0xff} << 56);  // No short word has this length.
}

std::span<const int32_t> WordCache::find_rare(std::string_view word, const Key& key) {
  for (size_t i = 0; i < kPlaces && place(key.hash, i).high != 0; ++i) {
    if (!place(key.hash, i).is(key)) continue;
    if (i >= kPlaces / 2) std::swap(place(key.hash, i), place(key.hash, 1));
    const Entry& entry = place(key.hash, std::min(i, kPlaces / 2 - 1));
    if (entry.count != 0) return std::span(entry.ids).first(static_cast<size_t>(entry.count));
    const auto count = static_cast<size_t>(entry.ids[1]);
    const char* const kept = kept_.data() + entry.ids[0];
    if (std::string_view(kept + 4 * count, static_cast<size_t>(entry.ids[2])) == word)
      return {reinterpret_cast<const int32_t*>(kept), count};
  }
  return {};
}

void WordCache::insert(std::string_view word, const Key& key, std::span<const int32_t> ids) {
  if (word.size() > kLongestWord || ids.empty()) return;
  if (kept_.size() > kMostKept) {
    kept_.clear();
    for (Entry& entry : std::span(table_.get(), size_t{1} << kBits))
      if (entry.count == 0) entry = {};
  }
  Entry entry{key.low, key.high};
  if (word.size() <= kShortWord && ids.size() <= kMostIds) {
    std::ranges::copy(ids, entry.ids.begin());
    entry.count = static_cast<int32_t>(ids.size());
  } else {
    entry.ids = {static_cast<int32_t>(kept_.size()), static_cast<int32_t>(ids.size()),
                 static_cast<int32_t>(word.size())};
    kept_.append(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()).append(word);
    kept_.resize((kept_.size() + 3) / 4 * 4);  // Ids are aligned.
  }
  for (size_t i = 0; i < kPlaces && entry.high != 0; ++i) std::swap(entry, place(key.hash, i));
}

}  // namespace tessera
