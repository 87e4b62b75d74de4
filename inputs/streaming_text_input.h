// SPDX-License-Identifier: Apache-2.0
// Batches straight from shards of text or lines of JSON, which are tokenised on the fly: nothing is
// prepared, nothing is written. Each row of the global batch reads documents of its own and packs
// them without waste. Not for mixtures, nor for rows in an order that is shuffled as a whole: that
// is what token files are for (flat_tokens build).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/base_input.h"
#include "inputs/streaming/lane_workers.h"

namespace tessera {

class StreamingTextInput final : public BaseInput {
 public:
  struct HParams {
    using Instance = StreamingTextInput;
    static constexpr std::string_view kName = "StreamingTextInput";
    Required<std::string> path;       // A file, a folder or a pattern of files (document_reader.h).
    std::string tokenizer = "bytes";  // Or a path (tokenizer.h).
    // Documents whose text falls into the held-out share are of split `validation`, whatever shard
    // they are in, the others of `train`; `all` takes both.
    StreamSplit split = StreamSplit::kTrain;
    double validation_fraction = 0.01;
    std::string name = "";  // Of the dataset, for eval lines; "": the split's.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    Labels labels = Labels::kNextToken;
    EndOfDocument end_of_document = EndOfDocument::kAuto;
    DocumentFormat format = DocumentFormat::kAuto;
    std::string text_field = "text";  // Of lines of JSON.
    std::string separator = "";       // Of text files: what parts documents; "": the file is one.
    BrokenDocuments broken_documents = BrokenDocuments::kFail;
    bool require_utf8 = true;       // Else bytes pass as they are.
    bool shuffle = true;            // The order of shards, anew in each epoch.
    int64_t shuffle_documents = 1;  // Within blocks of so many that a row reads; 1: not.
    bool repeat = true;             // Epoch after epoch; else one, its rows padded at the end.
    int64_t num_batches = -1;       // End after so many; -1: do not.
    int64_t num_workers = 2;        // Threads that read and tokenise.
    Field<int64_t> seed;            // Of the order.
    FIELDS(path, tokenizer, split, validation_fraction, name, global_batch_size, seq_len, labels,
           end_of_document, format, text_field, separator, broken_documents, require_utf8, shuffle,
           shuffle_documents, repeat, num_batches, num_workers, seed)
  };
  explicit StreamingTextInput(const HParams& p);

  const std::string& name() const override { return name_; }
  int64_t global_batch_size() const override { return p_.global_batch_size.get(); }
  void attach(const Infeed& infeed) override;
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  bool repeats() const override { return p_.repeat && p_.num_batches < 0; }
  Batch specification() const override;
  // A host whose rows have all ended gives nullopt, whatever others still hold.
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override;
  InputState state() const override;
  // Error for the state of other data, another batch size or another kind of input.
  void restore(const InputState& state) override;
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }

 private:
  void check() const;
  bool reached_limit() const;
  std::shared_ptr<const TextShards> find_shards() const;
  std::string describe(const TextShards& shards) const;
  int64_t seed() const;

  HParams p_;
  std::string name_;
  std::vector<int64_t> rows_;  // This host's, of the global batch.
  std::string data_;           // Tells the stream from others, for people too.
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<RowLayout> layout_;
  std::unique_ptr<LaneWorkers> workers_;  // A lane for each of rows_.
  int64_t position_ = 0;
};

extern template class HolderOf<BaseInput, StreamingTextInput::HParams>;

}  // namespace tessera
