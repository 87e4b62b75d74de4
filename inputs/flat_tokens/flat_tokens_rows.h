// SPDX-License-Identifier: Apache-2.0
// How a split of a flat-tokens file is cut into rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/token_row.h"

namespace tessera {

class BestFitPacking {
 public:
  // Best-fit decreasing bin packing of document pieces into rows (Johnson, 1973: at most 11/9 of
  // the optimal number of rows). Lengths are 1 to `capacity`. O(n log capacity) time, O(n) memory.
  // A pure function of the lengths.
  BestFitPacking(std::span<const int32_t> lengths, int32_t capacity);

  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // Indices of the pieces in a row, ascending.
  std::span<const uint32_t> row(int64_t number) const;

 private:
  std::vector<uint32_t> pieces_;  // Row by row.
  std::vector<int64_t> starts_;   // Beginnings of rows in pieces_, and the end.
};

struct RowOptions {
  bool packed = true;
  bool best_fit = false;  // Not packed: whole documents may share a row.
  Labels labels = Labels::kNextToken;
  int64_t seq_len = 0;
  // Shift the cut points of packed rows in each epoch, so that a token is not always predicted from
  // the same context. Costs one row per epoch.
  bool shifts = false;
  uint64_t seed = 0;  // Of the shift.
};

// The rows of one split of a file. Packed: rows are cut from the concatenated documents. Else a row
// holds one document, or several that fit, and a longer document takes several rows. Depends on the
// file alone, so rows do not change when files are added to a set.
class FlatTokensRows {
 public:
  FlatTokensRows(const std::filesystem::path& path, const std::string& split,
                 const RowOptions& options);

  const std::filesystem::path& path() const { return path_; }
  const FlatTokensReader& reader() const { return reader_; }
  int64_t size() const { return size_; }  // 0 if there are too few tokens for a label.
  // The token at which the rows of an epoch begin.
  int64_t phase(int64_t epoch) const;
  // Fills row `index` of an epoch.
  void fill(int64_t epoch, int64_t index, const RowLayout& layout, const TokenRow& row) const;

 private:
  // Tokens [begin, begin + size) of a row.
  struct Window {
    int64_t begin = 0;
    int64_t size = 0;
  };
  int64_t tokens_ahead() const {
    return tokens_per_row(options_.labels, options_.seq_len) - options_.seq_len;
  }
  Window packed_window(int64_t epoch, int64_t index) const;
  void count_packed_rows();
  void find_document_windows();
  void share_rows();

  std::filesystem::path path_;
  RowOptions options_;
  FlatTokensReader reader_;
  std::vector<Window> document_windows_;       // If not packed.
  std::optional<BestFitPacking> shared_rows_;  // If rows are shared.
  int64_t size_ = 0;
  int64_t max_phase_ = 0;
};

}  // namespace tessera
