// SPDX-License-Identifier: Apache-2.0
// The ids of words seen before, for one thread. Words of up to 15 bytes are keys of two registers,
// with up to three ids beside them; lines of the table are fetched before they are read. Keys of
// longer words are hashes; their bytes, and larger numbers of ids, are kept elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

class WordCache {
 public:
  static constexpr size_t kMostIds = 3;

  // The bytes of a short word, padded with zeros, and its length in the last byte.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    uint64_t hash = 0;
  };

  // Sets the keys of the words of a text that begin at `at` and end at `ends`, and starts to fetch
  // their entries.
  void prepare(std::string_view text, size_t at, std::span<const size_t> ends, Key* keys) const {
    for (const size_t end : ends) {
      *keys = key_of(text, at, end - at);
      __builtin_prefetch(&place((keys++)->hash, 0));
      at = end;
    }
  }
  static Key key_of(std::string_view text, size_t at, size_t size) {
    if (size > kShortWord) return long_key(text.substr(at, size));
    std::array<uint64_t, 2> bytes{};
    if (text.size() - at >= sizeof(bytes))
      std::memcpy(bytes.data(), text.data() + at, sizeof(bytes));
    else
      std::memcpy(bytes.data(), text.data() + at, size);
    return with_hash(bytes[0] & kMasks[size][0],
                     (bytes[1] & kMasks[size][1]) | uint64_t{size} << 56);
  }

  // Writes kMostIds + 1 ids, of which the word has those below the returned number; 0 if find_rare
  // has to be asked.
  size_t find(const Key& key, int32_t* ids) const {
    const Entry* entry = &place(key.hash, 0);
    entry += !entry->is(key);
    std::memcpy(ids, entry->ids.data(), sizeof(entry->ids) + sizeof(entry->count));
    return entry->is(key) ? static_cast<size_t>(entry->count) : 0;
  }
  // Returns the ids of a word for which `find` returned 0; none if it is unknown.
  std::span<const int32_t> find_rare(std::string_view word, const Key& key);
  // Keeps the ids of an unknown word. Ends the life of those that find_rare returned.
  void insert(std::string_view word, const Key& key, std::span<const int32_t> ids);

 private:
  static constexpr size_t kShortWord = 15;
  static constexpr size_t kLongestWord = 4096;
  static constexpr int kBits = 19;              // 16 MiB.
  static constexpr size_t kMostKept = 8 << 20;  // Bytes.

  struct alignas(32) Entry {
    uint64_t low = 0;
    uint64_t high = 0;  // 0: free.
    std::array<int32_t, kMostIds> ids{};
    int32_t count = 0;  // 0: ids are the place in kept_, the number of ids, and of bytes.

    // Without a branch, which could not be predicted.
    bool is(const Key& key) const { return ((low ^ key.low) | (high ^ key.high)) == 0; }
  };
  struct Unmap {
    void operator()(Entry* entries) const;
  };
  using Table = std::unique_ptr<Entry[], Unmap>;
  static Table allocate();

  static Key with_hash(uint64_t low, uint64_t high) {
    const uint64_t mixed = low * 0x9e3779b97f4a7c15u ^ high * 0xbf58476d1ce4e5b9u;
    return {low, high, (mixed ^ mixed >> 32) * 0x94d049bb133111ebu};
  }
  static Key long_key(std::string_view word);

  // A key is in one of kPlaces entries. The first two share a cache line, the others the next; the
  // first were used last.
  static constexpr size_t kPlaces = 4;
  Entry& place(uint64_t hash, size_t i) const { return table_[(2 * (hash >> (65 - kBits))) ^ i]; }

  // By the size of a word: ones for its bytes.
  static constexpr auto kMasks = [] {
    std::array<std::array<uint64_t, 2>, kShortWord + 1> masks{};
    for (size_t size = 0; size <= kShortWord; ++size)
      for (size_t i = 0; i < size; ++i) masks[size][i / 8] |= uint64_t{0xff} << (8 * (i % 8));
    return masks;
  }();

  Table table_ = allocate();
  std::string kept_;  // Ids and bytes of words.
};

}  // namespace tessera
