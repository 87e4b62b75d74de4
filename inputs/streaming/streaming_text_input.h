// SPDX-License-Identifier: Apache-2.0
// Rows from shards of documents, tokenised on the fly. Lanes read documents of their own and pack
// them without padding; row n of the stream is the next one of lane n modulo their number, which is
// the batch size with which a run begins. So the rows do not depend on the sizes of later batches.
// For full shuffles, build token files instead (flat_tokens build).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/streaming/stream_shard.h"

namespace tessera {

// Which files a host reads.
enum class Sharding {
  kGlobal,  // Its rows of one global sequence, which does not depend on hosts.
  // Its own: every N-th of the files, or with {host} in the path, which becomes the host's number,
  // all that are there. The sequence depends on the hosts, and a run resumes on as many.
  kByHost,
};

class StreamingTextInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = StreamingTextInput;
    Required<std::string> path;  // A file, a folder or a file pattern (text_files.h).
    Sharding sharding = Sharding::kGlobal;
    std::string tokenizer = "bytes";  // Or a path (make_tokenizer.h).
    // `validation` reads the documents that in_validation_split chooses, in all shards, or of each
    // file the first ones, for which it reads no others; `train` reads the rest, `all` reads both.
    StreamSplit split = StreamSplit::kTrain;
    double validation_fraction = 0.01;
    int64_t validation_docs_per_file = 0;  // Replaces validation_fraction; 0: not used.
    std::string name = "";                 // Dataset name in eval metrics; "": the split's name.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    Labels labels = Labels::kNextToken;
    EndOfDocument end_of_document = EndOfDocument::kAuto;
    std::string format = std::string(kAutoFormat);  // The format of all files (document_format.h).
    std::string text_field = "text";                // ReadOptions::text_field.
    std::string separator = "";  // Separates documents in text files; "": one document per file.
    Template<BaseDocumentMap> document_map_tpl;  // Applied to each document; unset: none.
    CorruptRecords broken_documents = CorruptRecords::kFail;
    bool require_utf8 = true;       // Else any bytes are accepted.
    bool shuffle = true;            // Shuffle the units in each epoch.
    int64_t shuffle_documents = 1;  // Block size for shuffling documents; 1: no shuffling.
    bool repeat = true;             // Repeat epochs; else one, with rows padded at the end.
    int64_t num_batches = -1;       // End after this many; -1: no limit.
    int64_t num_workers = 2;        // Threads that read and tokenise.
    Field<int64_t> seed;            // Seed of the order.
    FIELDS(path, sharding, tokenizer, split,
           About(validation_fraction, "share of documents", kRate),
           About(validation_docs_per_file, "the first documents of each file", kNotNegative), name,
           About(global_batch_size, kSize), About(seq_len, kSize), labels, end_of_document, format,
           text_field, separator, document_map_tpl, broken_documents, require_utf8, shuffle,
           About(shuffle_documents, "block size for shuffling documents; 1: none", kSize), repeat,
           About(num_batches, "batches until the end; -1: no limit", {.min = 1, .also = -1}),
           About(num_workers, "threads that read and tokenise", {.min = 1, .max = 1024}), seed)
  };
  explicit StreamingTextInput(const HParams& p);

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  bool follows_sizes() const override { return p_.sharding == Sharding::kGlobal; }
  bool repeats() const override { return p_.repeat && p_.num_batches < 0; }
  std::optional<int64_t> num_examples() const override { return std::nullopt; }
  std::string ids_fingerprint() const override { return tokenizer_->fingerprint(); }
  // Returns nullopt once all lanes of this host have ended, even if other hosts have rows left.
  std::optional<Batch> peek() override;
  void reset() override;
  void release(int64_t examples) override;
  std::map<std::string, std::string> cursors_at(int64_t examples) const override;
  // Error for the state of other data or another kind of input.
  void resume(const std::map<std::string, std::string>& cursors, int64_t examples) override;
  std::map<std::string, std::string> contents() const override { return content_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  bool documents_begin_with_start_id() const override { return p_.labels == Labels::kShiftRight; }
  std::vector<std::string> remarks() const override { return remarks_; }

 private:
  void open(const Infeed& infeed) override;
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;
  void find_files(const Infeed& infeed, TextFiles* found);
  void open_lanes(int64_t count);
  int64_t rows_of_lane(size_t lane, int64_t examples) const;
  std::string data_key() const;
  void add_own_files(const TextFiles& all, const TextFiles& own);
  std::string describe() const;

  HParams p_;
  std::vector<std::string> remarks_;
  int64_t host_ = 0, num_hosts_ = 1;            // With Sharding::kByHost.
  std::map<std::string, std::string> content_;  // Of several hosts.
  std::string data_;  // Description of the stream, compared when resuming.
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<RowLayout> layout_;
  std::unique_ptr<TextShards> shards_;  // Their order is of the lanes.
  int64_t num_lanes_ = 0;               // Of all hosts.
  std::vector<int64_t> lanes_;          // Whose rows this host reads, ascending.
  std::vector<int64_t> released_;       // Rows of each.
  std::unique_ptr<StreamWorkers> workers_;
};

extern template class HolderOf<BaseInput, StreamingTextInput::HParams>;

}  // namespace tessera
