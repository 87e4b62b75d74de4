// SPDX-License-Identifier: Apache-2.0
// Batches from flat-tokens files: packed rows (cut from the concatenated documents) or one document
// per row, shuffled without tables, with exact seek to any position. A set of files may grow
// between runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/flat_tokens/flat_tokens_rows.h"
#include "inputs/indexed_input.h"

namespace tessera {

// Prefix of paths in the run's directory.
inline constexpr std::string_view kRunDirectory = "$RUN/";

class FlatTokensInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = FlatTokensInput;
    static constexpr std::string_view kName = "FlatTokensInput";
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
    Field<int64_t> seed;         // Of the order.
    FIELDS(path, split, name, tokenizer, global_batch_size, seq_len, packed, best_fit, labels,
           shuffle, era_length, repeat, num_batches, seed)
  };
  explicit FlatTokensInput(const HParams& p);

  int64_t vocab_size() const override { return vocab_size_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  std::string ids_fingerprint() const override;
  // The token at which the first file's rows begin in an epoch (packed, shuffled and repeated).
  int64_t phase(int64_t epoch) const { return files_[0].phase(epoch); }

 private:
  void open(const Infeed& infeed) override;
  std::optional<int64_t> num_examples() const override { return ends_.back(); }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;
  std::vector<DataPart> data_parts() const override;
  std::vector<std::filesystem::path> find_files(const Infeed& infeed) const;
  void open_tokenizer();
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
