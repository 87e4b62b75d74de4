// SPDX-License-Identifier: Apache-2.0
// Batches from flat-tokens files: packed rows (cut from the concatenated documents) or one document
// per row, shuffled without tables, with exact seek to any position. A set of files may grow
// between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/indexed_input.h"
#include "inputs/token_row.h"

namespace tessera {

class BestFitPacking {
 public:
  // Packs document pieces into rows by best-fit decreasing (Johnson, 1973: at most 11/9 of the
  // optimal number of rows). Lengths are 1 to `capacity`. O(n log capacity) time, O(n) memory. A
  // pure function of the lengths.
  BestFitPacking(std::span<const int32_t> lengths, int32_t capacity);

  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // Returns indices of the pieces in a row, ascending.
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
  uint64_t seed = 0;  // Seed of the shift.
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
  // Returns the token at which the rows of an epoch begin.
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

// Returns the tokenizer `given`, a name or path, or if it is "" the one that the file contains;
// null if the file only names it. Error if it is not the one that made the tokens.
std::unique_ptr<Tokenizer> tokenizer_of_tokens(const FlatTokensReader& reader,
                                               const std::filesystem::path& path,
                                               const std::string& given);

// Prefix of paths in the run's directory.
inline constexpr std::string_view kRunDirectory = "$RUN/";

class FlatTokensInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = FlatTokensInput;
    // An HDF5 file, or a pattern ("tokens/*.h5") of several, read in name order. "$RUN/corpus.h5"
    // is the run's corpus snapshot.
    Required<std::string> path;
    std::string split = "train";
    std::string name = "";  // Dataset name in eval metrics; "": the split's name.
    // Name or path; must be the tokenizer that made the file. "": the one in the file.
    std::string tokenizer = "";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    bool packed = true;     // Else one document per row; longer documents take several rows.
    bool best_fit = false;  // For packed=false: several whole documents may share a row.
    Labels labels = Labels::kNextToken;
    Shuffle shuffle = Shuffle::kFull;
    int64_t era_length = 65536;  // In rows, for shuffle=era.
    bool repeat = true;          // Repeat epochs; false for eval: each row once.
    int64_t num_batches = -1;    // End after this many; -1: no limit.
    Field<int64_t> seed;         // Seed of the order.
    FIELDS(path, split, name, tokenizer, About(global_batch_size, kSize), About(seq_len, kSize),
           packed, best_fit, labels, shuffle, About(era_length, kSize), repeat,
           About(num_batches, "batches until the end; -1: no limit", {.min = 1, .also = -1}), seed)
  };
  explicit FlatTokensInput(const HParams& p);

  int64_t vocab_size() const override { return vocab_size_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  bool documents_begin_with_start_id() const override { return p_.labels == Labels::kShiftRight; }
  std::string ids_fingerprint() const override;
  // Returns the token at which the first file's rows begin in an epoch (packed, shuffled,
  // repeated).
  int64_t phase(int64_t epoch) const { return files_[0].phase(epoch); }

 private:
  void open(const Infeed& infeed) override;
  std::optional<int64_t> num_examples() const override { return ends_.back(); }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;
  std::vector<DataPart> data_parts() const override;
  std::string content_of(size_t index, ContentSample& sample) const override;
  std::vector<std::filesystem::path> find_files(const Infeed& infeed) const;
  void check_files() const;

  HParams p_;
  std::vector<FlatTokensRows> files_;
  std::vector<int64_t> ends_;             // Cumulative rows of the files.
  std::unique_ptr<Tokenizer> tokenizer_;  // Null if the files name one that they do not contain.
  std::unique_ptr<RowLayout> layout_;
  int64_t vocab_size_ = 0;
};

extern template class HolderOf<BaseInput, FlatTokensInput::HParams>;

}  // namespace tessera
