// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/arena_packing.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tessera {
namespace {

// Beyond this many blocks the search by size, quadratic at worst, takes too long.
constexpr size_t kMostBySize = 20000;

bool overlap(const PackedBlock& a, const PackedBlock& b) {
  return a.first <= b.last && b.first <= a.last;
}

std::vector<size_t> ordered(const std::vector<PackedBlock>& blocks, auto before) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
  return order;
}

// Free memory by offset; the last gap is open-ended.
class FreeList {
 public:
  int64_t take(int64_t bytes) {
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
      if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) best = gap;
    if (best == gaps_.end()) return extend(bytes);
    const auto [offset, size] = *best;
    gaps_.erase(best);
    if (size > bytes) gaps_.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    const auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == offset + bytes) {
      bytes += next->second;
      gaps_.erase(next);
    }
    const auto after = gaps_.lower_bound(offset);
    if (after != gaps_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    gaps_.emplace(offset, bytes);
  }

  int64_t top() const { return top_; }

 private:
  // Grows the arena by what a gap at its end leaves missing.
  int64_t extend(int64_t bytes) {
    int64_t offset = top_;
    if (!gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == top_) {
      offset = gaps_.rbegin()->first;
      gaps_.erase(std::prev(gaps_.end()));
    }
    top_ = offset + bytes;
    return offset;
  }

  std::map<int64_t, int64_t> gaps_;  // Offset to size; neighbours are joined.
  int64_t top_ = 0;
};

// In order of birth, each into the smallest gap that takes it.
int64_t pack_by_time(std::vector<PackedBlock>& blocks) {
  const std::vector<size_t> order =
      ordered(blocks, [](const PackedBlock& a, const PackedBlock& b) { return a.first < b.first; });
  std::multimap<int64_t, size_t> alive;  // By last moment.
  FreeList memory;
  for (const size_t i : order) {
    while (!alive.empty() && alive.begin()->first < blocks[i].first) {
      const PackedBlock& dead = blocks[alive.begin()->second];
      memory.give(dead.offset, aligned(dead.bytes));
      alive.erase(alive.begin());
    }
    blocks[i].offset = memory.take(aligned(blocks[i].bytes));
    alive.emplace(blocks[i].last, i);
  }
  return memory.top();
}

// Largest first, each into the smallest gap left by those placed that live when it does.
int64_t pack_by_size(std::vector<PackedBlock>& blocks) {
  const std::vector<size_t> order =
      ordered(blocks, [](const PackedBlock& a, const PackedBlock& b) { return a.bytes > b.bytes; });
  std::vector<size_t> placed;  // By offset.
  int64_t top = 0;
  for (const size_t i : order) {
    const int64_t bytes = aligned(blocks[i].bytes);
    int64_t end = 0, best = -1, best_gap = 0;
    for (const size_t j : placed) {
      if (!overlap(blocks[i], blocks[j])) continue;
      const int64_t gap = blocks[j].offset - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, blocks[j].offset + aligned(blocks[j].bytes));
    }
    blocks[i].offset = best >= 0 ? best : end;
    top = std::max(top, blocks[i].offset + bytes);
    const auto position =
        std::upper_bound(placed.begin(), placed.end(), i,
                         [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; });
    placed.insert(position, i);
  }
  return top;
}

}  // namespace

int64_t pack(std::vector<PackedBlock>& blocks) {
  const int64_t by_time = pack_by_time(blocks);
  if (by_time == most_alive(blocks) || blocks.size() > kMostBySize) return by_time;
  std::vector<PackedBlock> other = blocks;
  const int64_t by_size = pack_by_size(other);
  if (by_size >= by_time) return by_time;
  blocks = std::move(other);
  return by_size;
}

int64_t most_alive(const std::vector<PackedBlock>& blocks) {
  std::map<int64_t, int64_t> change;  // Of the bytes alive, by moment.
  for (const PackedBlock& block : blocks) {
    change[block.first] += aligned(block.bytes);
    change[block.last + 1] -= aligned(block.bytes);
  }
  int64_t alive = 0, most = 0;
  for (const auto& [moment, bytes] : change) {
    alive += bytes;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace tessera
