// SPDX-License-Identifier: Apache-2.0
#include "inputs/best_fit_rows.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.h"

namespace tessera {
namespace {

// Numbers of the lengths, the longest first, equals as they stand.
std::vector<uint32_t> by_length(std::span<const int32_t> lengths, int32_t capacity) {
  std::vector<int64_t> next(static_cast<size_t>(capacity) + 2, 0);
  for (const int32_t length : lengths) {
    CHECK(length >= 1 && length <= capacity, "a length of {} for {}", length, capacity);
    ++next[static_cast<size_t>(capacity - length) + 1];
  }
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<uint32_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<size_t>(next[static_cast<size_t>(capacity - lengths[i])]++)] =
        static_cast<uint32_t>(i);
  return order;
}

}  // namespace

BestFitRows::BestFitRows(std::span<const int32_t> lengths, int32_t capacity) {
  if (lengths.size() > std::numeric_limits<uint32_t>::max())
    fail("{} pieces of documents are more than best-fit packing takes (2^32)", lengths.size());
  std::vector<uint32_t> row_of(lengths.size());
  std::map<int32_t, std::vector<uint32_t>> open;  // Rows by the room they have left, if any.
  uint32_t rows = 0;
  for (const uint32_t piece : by_length(lengths, capacity)) {
    const int32_t length = lengths[piece];
    const auto best = open.lower_bound(length);
    int32_t room = capacity;
    if (best == open.end()) {
      row_of[piece] = rows++;
    } else {
      room = best->first;
      row_of[piece] = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    if (room > length) open[room - length].push_back(row_of[piece]);
  }

  starts_.assign(static_cast<size_t>(rows) + 1, 0);
  for (const uint32_t row : row_of) ++starts_[row + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  pieces_.resize(lengths.size());
  for (size_t i = 0; i < row_of.size(); ++i)
    pieces_[static_cast<size_t>(next[row_of[i]]++)] = static_cast<uint32_t>(i);
}

std::span<const uint32_t> BestFitRows::row(int64_t number) const {
  CHECK(number >= 0 && number < num_rows(), "row {} of {}", number, num_rows());
  const auto begin = static_cast<size_t>(starts_[static_cast<size_t>(number)]);
  const auto end = static_cast<size_t>(starts_[static_cast<size_t>(number) + 1]);
  return std::span(pieces_).subspan(begin, end - begin);
}

}  // namespace tessera
