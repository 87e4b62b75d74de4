// SPDX-License-Identifier: Apache-2.0
// Batches from a flat-tokens file: packed (rows cut from the run of all documents) or one document
// a row; shuffled by a permutation that needs no table; exact seek to any position.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/best_fit_rows.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/indexed_input.h"

namespace tessera {

// A path that begins so is in the run's directory.
inline constexpr std::string_view kRunDirectory = "$RUN/";

class FlatTokensInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = FlatTokensInput;
    static constexpr std::string_view kName = "FlatTokensInput";
    Required<std::string> path;  // Of the HDF5 file; "$RUN/corpus.h5": what the run has frozen.
    std::string split = "train";
    std::string name = "";  // Of the dataset, for eval lines; "": the split's.
    // By name or path; it must be the one that the file was made with. "": what the file carries.
    std::string tokenizer = "";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    bool packed = true;     // Else one document a row; a longer one takes several.
    bool best_fit = false;  // Of rows that are not packed: documents that fit share one, unsplit.
    Labels labels = Labels::kNextToken;
    bool shuffle = true;
    bool repeat = true;        // Epoch after epoch; false for eval: each row once.
    int64_t num_batches = -1;  // End after so many; -1: do not.
    Field<int64_t> seed;       // Of the order.
    FIELDS(path, split, name, tokenizer, global_batch_size, seq_len, packed, best_fit, labels,
           shuffle, repeat, num_batches, seed)
  };
  explicit FlatTokensInput(const HParams& p);

  int64_t vocab_size() const override { return reader_->vocab_size(); }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  // The order in epoch `epoch` begins its rows at this token (packed, shuffled and repeated).
  int64_t phase(int64_t epoch) const;

 private:
  // A row's tokens: [begin, begin + size).
  struct Window {
    int64_t begin = 0;
    int64_t size = 0;
  };
  void open(const Infeed& infeed) override;
  std::optional<int64_t> num_examples() const override { return num_examples_; }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;
  std::string data_fingerprint() const override { return reader_->fingerprint(); }
  Window packed_window(int64_t epoch, int64_t index) const;
  void open_tokenizer(const std::string& path);
  void count_packed_rows();
  void find_document_windows();
  void share_rows();
  std::vector<Window> windows_of(int64_t epoch, int64_t index) const;

  HParams p_;
  std::unique_ptr<FlatTokensReader> reader_;
  std::unique_ptr<Tokenizer> tokenizer_;  // Null if the file names one that it does not carry.
  std::unique_ptr<RowLayout> layout_;
  std::vector<Window> document_windows_;    // Unpacked.
  std::optional<BestFitRows> shared_rows_;  // Of those, if they share rows.
  int64_t num_examples_ = 0;
  int64_t max_phase_ = 0;
};

}  // namespace tessera
