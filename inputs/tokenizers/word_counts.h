// SPDX-License-Identifier: Apache-2.0
// Counts words: a hash table of about 35 bytes a word besides its text, which it copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace tessera {

class WordCounts {
 public:
  struct Word {
    const char* bytes = nullptr;
    uint32_t size = 0;
    uint32_t hash = 0;
    int64_t count = 0;

    std::string_view text() const { return {bytes, size}; }
  };

  void add(std::string_view text, int64_t count = 1) {
    const auto hash = static_cast<uint32_t>(std::hash<std::string_view>()(text));
    if (3 * words_.size() >= 2 * slots_.size()) grow();
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      Word& word = words_[slots_[at] - 1];
      if (word.hash == hash && word.text() == text) {
        word.count += count;
        return;
      }
    }
    words_.push_back({keep(text), static_cast<uint32_t>(text.size()), hash, count});
    slots_[at] = static_cast<uint32_t>(words_.size());
  }

  // Adds the counts of another table.
  void add(const WordCounts& other) {
    for (const Word& word : other.words_) add(word.text(), word.count);
  }

  // In the order in which they were added first.
  const std::deque<Word>& words() const { return words_; }

 private:
  void grow() {
    if (slots_.size() == size_t{1} << 32)
      fail("the text has more than {} distinct words; train on a sample", words_.size());
    slots_.assign(std::max<size_t>(1 << 12, 2 * slots_.size()), 0);
    uint32_t number = 0;
    for (const Word& word : words_) {
      size_t at = word.hash & (slots_.size() - 1);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = ++number;
    }
  }

  // Returns a copy that lives as long as the table.
  const char* keep(std::string_view text) {
    constexpr size_t kBlock = 1 << 20;
    if (text.size() > left_) {
      left_ = std::max(kBlock, text.size());
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(left_));
      free_ = blocks_.back().get();
    }
    char* const copy = free_;
    std::memcpy(copy, text.data(), text.size());
    free_ += text.size();
    left_ -= text.size();
    return copy;
  }

  std::vector<uint32_t> slots_;  // A power of two; the number of a word + 1, or 0: free.
  std::deque<Word> words_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t left_ = 0;
};

}  // namespace tessera
