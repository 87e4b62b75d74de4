// SPDX-License-Identifier: Apache-2.0
// The ids of words that are tokens, for models that look for whole words before they merge: one
// access to memory for most words, known or not.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/tokenizers/huge_pages.h"
#include "inputs/tokenizers/word_cache.h"

namespace tessera {

class WholeWords {
 public:
  explicit WholeWords(size_t most_words = 0) : slots_(std::bit_ceil(2 * most_words + 1)) {}

  bool empty() const { return is_empty_; }
  // The first id of a word counts.
  void put(std::string_view word, int32_t id) {
    const WordCache::Key key = WordCache::key_of(word, 0, word.size());
    Slot& slot = slots_[place(word, key)];
    is_empty_ = false;
    if (word.empty() || slot.high != 0) return;
    slot = {key.low, key.high, id, static_cast<uint32_t>(long_words_.size())};
    if (!WordCache::is_exact(word)) long_words_.emplace_back(word);
  }
  // Returns -1 if the word is no token.
  int32_t find(std::string_view word) const {
    return slots_[place(word, WordCache::key_of(word, 0, word.size()))].id;
  }

 private:
  struct Slot {
    uint64_t low = 0;
    uint64_t high = 0;  // 0: free.
    int32_t id = -1;
    uint32_t long_word = 0;
  };

  // Returns the slot of the word, or the free slot where it belongs.
  size_t place(std::string_view word, const WordCache::Key& key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = key.hash >> 32 & mask;
    for (; slots_[at].high != 0; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.low == key.low && slot.high == key.high &&
          (WordCache::is_exact(word) || long_words_[slot.long_word] == word))
        break;
    }
    return at;
  }

  bool is_empty_ = true;
  std::vector<Slot, HugePages<Slot>> slots_;
  std::vector<std::string> long_words_;
};

}  // namespace tessera
