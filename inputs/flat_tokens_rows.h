// SPDX-License-Identifier: Apache-2.0
// How one split of a flat-tokens file is cut into rows. Packed: rows are cut from the run of all
// documents; else a row holds one document, or several that fit, and a longer one takes several
// rows. A function of the file alone, so that rows stay what they are when files join a set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "inputs/best_fit_rows.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/token_row.h"

namespace tessera {

struct RowCut {
  bool packed = true;
  bool best_fit = false;  // Unpacked: documents that fit share a row, unsplit.
  Labels labels = Labels::kNextToken;
  int64_t seq_len = 0;
  // Packed rows begin at another token in each epoch, so that a token is not always predicted from
  // the same context. It costs a row an epoch.
  bool moves = false;
  uint64_t seed = 0;  // Of where they begin.
};

class FlatTokensRows {
 public:
  FlatTokensRows(const std::filesystem::path& path, const std::string& split, const RowCut& cut);

  const std::filesystem::path& path() const { return path_; }
  const FlatTokensReader& reader() const { return reader_; }
  int64_t size() const { return size_; }  // 0 if the tokens leave nothing to predict.
  // The token at which an epoch's rows begin.
  int64_t phase(int64_t epoch) const;
  // Fills row `index` of epoch `epoch`.
  void fill(int64_t epoch, int64_t index, const RowLayout& layout, const TokenRow& row) const;

 private:
  // A row's tokens: [begin, begin + size).
  struct Window {
    int64_t begin = 0;
    int64_t size = 0;
  };
  int64_t tokens_ahead() const { return tokens_per_row(cut_.labels, cut_.seq_len) - cut_.seq_len; }
  Window packed_window(int64_t epoch, int64_t index) const;
  void count_packed_rows();
  void find_document_windows();
  void share_rows();

  std::filesystem::path path_;
  RowCut cut_;
  FlatTokensReader reader_;
  std::vector<Window> document_windows_;    // Unpacked.
  std::optional<BestFitRows> shared_rows_;  // Of those, if they share rows.
  int64_t size_ = 0;
  int64_t max_phase_ = 0;
};

}  // namespace tessera
