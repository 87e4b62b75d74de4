// SPDX-License-Identifier: Apache-2.0
// Which pieces of documents share a row, so that few positions are left empty and no piece is
// split: the longest first, each into the row that it fills best (best-fit decreasing, Johnson,
// 1973: at most 11/9 of the fewest rows). A pure function of the lengths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

class BestFitRows {
 public:
  // Lengths are from 1 to `capacity`. Time and memory are linear in their number, but for a
  // logarithm of the capacity.
  BestFitRows(std::span<const int32_t> lengths, int32_t capacity);

  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // The numbers of the pieces of a row, ascending.
  std::span<const uint32_t> row(int64_t number) const;

 private:
  std::vector<uint32_t> pieces_;  // Row by row.
  std::vector<int64_t> starts_;   // Of rows in it, and its end.
};

}  // namespace tessera
