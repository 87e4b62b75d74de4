// SPDX-License-Identifier: Apache-2.0
// Words are short: they are searched again for each merge, which is quadratic and fast. Long ones
// keep their merges in a heap and their symbols in a linked list.
#include "inputs/tokenizers/merge_symbols.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr size_t kLongestShortWord = 64;

void merge_short(const PairTable& table, MergeScratch* scratch) {
  std::vector<int32_t>& symbols = scratch->symbols;
  std::vector<PairTable::Merge>& merges = scratch->merges;  // [i]: of symbols i and i + 1.
  size_t count = symbols.size();
  merges.resize(count - 1);
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = table.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    // As numbers without a sign, -1 is the largest.
    size_t best = 0;
    uint32_t lowest = static_cast<uint32_t>(merges[0].rank);
    for (size_t i = 1; i + 1 < count; ++i) {
      const auto rank = static_cast<uint32_t>(merges[i].rank);
      if (rank < lowest) {
        lowest = rank;
        best = i;
      }
    }
    if (merges[best].rank < 0) break;
    symbols[best] = merges[best].made;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best + 1 < count) merges[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

class LongWord {
 public:
  LongWord(const PairTable& table, MergeScratch* scratch)
      : table_(table),
        symbols_(scratch->symbols),
        previous_(scratch->previous),
        next_(scratch->next),
        queue_(scratch->queue) {}

  void merge() {
    link();
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), later);
      const QueuedMerge top = queue_.back();
      queue_.pop_back();
      const int32_t right = next_[at(top.position)];
      // What stands there may have changed since.
      if (symbols_[at(top.position)] < 0 || right == end_) continue;
      if (table_.find(symbols_[at(top.position)], symbols_[at(right)]).made != top.made) continue;
      symbols_[at(top.position)] = top.made;
      symbols_[at(right)] = -1;
      const int32_t after = next_[at(right)];
      next_[at(top.position)] = after;
      if (after != end_) previous_[at(after)] = top.position;
      if (previous_[at(top.position)] >= 0) push(previous_[at(top.position)], top.position);
      if (after != end_) push(top.position, after);
    }
    std::erase(symbols_, -1);
  }

 private:
  static size_t at(int32_t position) { return static_cast<size_t>(position); }
  static bool later(const QueuedMerge& one, const QueuedMerge& other) {
    return one.rank != other.rank ? one.rank > other.rank : one.position > other.position;
  }

  void link() {
    end_ = static_cast<int32_t>(symbols_.size());
    previous_.resize(symbols_.size());
    next_.resize(symbols_.size());
    queue_.clear();
    for (int32_t i = 0; i < end_; ++i) {
      previous_[at(i)] = i - 1;
      next_[at(i)] = i + 1;
      if (i + 1 == end_) continue;
      const PairTable::Merge merge = table_.find(symbols_[at(i)], symbols_[at(i + 1)]);
      if (merge.rank >= 0) queue_.push_back({merge.rank, i, merge.made});
    }
    std::make_heap(queue_.begin(), queue_.end(), later);
  }

  void push(int32_t left, int32_t right) {
    const PairTable::Merge merge = table_.find(symbols_[at(left)], symbols_[at(right)]);
    if (merge.rank < 0) return;
    queue_.push_back({merge.rank, left, merge.made});
    std::push_heap(queue_.begin(), queue_.end(), later);
  }

  const PairTable& table_;
  std::vector<int32_t>& symbols_;
  std::vector<int32_t>& previous_;
  std::vector<int32_t>& next_;
  std::vector<QueuedMerge>& queue_;
  int32_t end_ = 0;
};

}  // namespace

void merge_symbols(const PairTable& merges, MergeScratch* scratch) {
  if (scratch->symbols.size() < 2) return;
  if (scratch->symbols.size() <= kLongestShortWord)
    merge_short(merges, scratch);
  else
    LongWord(merges, scratch).merge();
}

}  // namespace tessera
