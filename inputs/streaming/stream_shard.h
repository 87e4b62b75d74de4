// SPDX-License-Identifier: Apache-2.0
// The stream of one row of the global batch: reads its documents, tokenises them and cuts the
// tokens into rows, on background threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/readers/document_reader.h"
#include "inputs/readers/text_files.h"
#include "inputs/shuffle.h"
#include "inputs/token_row.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// The documents to read (in_validation_split).
enum class StreamSplit { kTrain, kValidation, kAll };

// Shared by all rows.
struct TextShards {
  std::vector<TextFile> files;
  ShardOrder order;
  ReadOptions read;
  DocumentFormat format = DocumentFormat::kAuto;
  StreamSplit split = StreamSplit::kTrain;
  double validation_fraction = 0.0;
  bool repeat = true;
  // Shuffles documents within blocks of this many; 1: no shuffling.
  int64_t shuffle_block = 1;
  uint64_t seed = 0;
};

// The position of a document.
struct DocumentCursor {
  int64_t unit = 0;            // Unit number of ShardOrder.
  ShardPosition block;         // Beginning of the document's block in the unit.
  int64_t index = 0;           // Index in the (shuffled) block.
  CorruptRecordCount corrupt;  // Skipped by this row before the block.
};

// Reads the documents of one row of a stream of text, one after another and epoch after epoch. The
// sequence is a pure function of the row number, and any document can be returned to.
class ShardReader {
 public:
  ShardReader(std::shared_ptr<const TextShards> shards, int64_t row);

  struct Document {
    std::string text;      // Not empty.
    int64_t number = 0;    // Index in its shard.
    DocumentCursor place;  // Restoring it makes `next` return this document.
  };
  // Returns nullopt at the end of a finite set. Error if the row has no document in two epochs.
  std::optional<Document> next();
  const DocumentCursor& place() const { return place_; }  // Position of the next document.
  void restore(const DocumentCursor& place);
  std::string shard_name(int64_t unit) const;
  // Skips a document that cannot be tokenised, or Error, as configured for corrupt records.
  void skip_document(const Document& document, const Error& error);
  DocumentCursor begin() const { return {.unit = row_, .block = {}, .index = 0, .corrupt = {}}; }

 private:
  bool at_end() const;
  void read_block();
  void leave_block();
  void open_unit();
  void leave_unit();
  bool is_wanted(const std::string& text) const;
  void shuffle();

  std::shared_ptr<const TextShards> shards_;
  int64_t row_;
  std::unique_ptr<DocumentReader> reader_;  // Reader of the current unit; opened on demand.
  DocumentCursor place_;                    // `block`: the beginning of block_.
  struct BlockText {
    std::string text;
    int64_t number = 0;  // Index in its shard.
  };
  std::vector<BlockText> block_;  // Documents from place_.index on are still to be returned.
  bool block_read_ = false;
  CorruptRecordCount corrupt_before_;  // Before the reader's initial position.
  int64_t idle_units_ = 0;             // Units without a document since the last one.
};

// Whether to append the tokenizer's `end_id` to each document.
enum class EndOfDocument {
  kAuto,  // If the tokenizer has one.
  kNone,
};

// The position of a row's stream: a document, and a token in it.
struct StreamCursor {
  DocumentCursor document;
  int64_t tokens = 0;  // Tokens of the document already returned.
};

// Formats a cursor for checkpoints: "<unit> <document> <offset> <index> <tokens>". Counts of
// corrupt records are stored separately (base_input.h).
std::string stream_cursor_text(const StreamCursor& place);
// Error if malformed; `what` names the text in messages.
StreamCursor parse_stream_cursor(const std::string& text, const std::string& what);

// The token stream of one row of the global batch. A document continues in the next row, so no
// token is dropped.
class StreamShard {
 public:
  struct Options {
    Labels labels = Labels::kNextToken;
    int64_t seq_len = 0;
    EndOfDocument end_of_document = EndOfDocument::kAuto;
  };
  // The tokenizer must outlive the shard.
  StreamShard(std::shared_ptr<const TextShards> shards, const Tokenizer& tokenizer,
              const Options& options, int64_t row);

  // Returns at most tokens_per_row encoded tokens of the next row; empty at the end of a finite
  // set.
  std::vector<uint32_t> next_row();
  StreamCursor place() const;  // Position of the next row.
  void restore(const StreamCursor& place);
  StreamCursor begin() const { return {documents_.begin(), 0}; }

 private:
  struct Piece {
    DocumentCursor place;
    std::vector<int32_t> ids;
    size_t used = 0;
  };
  bool add_document();

  const Tokenizer& tokenizer_;
  Options options_;
  ShardReader documents_;
  std::deque<Piece> pieces_;  // Each has unused tokens.
  size_t available_ = 0;      // Unused tokens in pieces_.
  // Tokens to skip of the document at `resumed_`, which were returned before; 0 once it is read.
  size_t skip_ = 0;
  DocumentCursor resumed_;
};

// Threads that fill rows of several stream shards ahead of use, the emptiest queue first. The rows
// do not depend on the threads.
class StreamWorkers {
 public:
  // `ahead`: the maximum number of rows queued per shard.
  StreamWorkers(std::vector<std::unique_ptr<StreamShard>> shards, int64_t threads, int64_t ahead);
  ~StreamWorkers();

  // Returns the next row of a shard; empty at its end. Blocks, and rethrows the shard's exception.
  const std::vector<uint32_t>& front(size_t shard);
  void pop(size_t shard);
  StreamCursor place(size_t shard) const;  // After the rows popped.
  void restart();                          // From the beginning.
  void restart(const std::vector<StreamCursor>& places);

 private:
  struct Row {
    std::vector<uint32_t> tokens;  // Empty: the end.
    StreamCursor after;
    std::exception_ptr error;
  };
  struct Queue {
    std::unique_ptr<StreamShard> shard;  // Used by one thread while `busy`.
    std::deque<Row> ready;
    StreamCursor returned;
    bool busy = false;
    bool finished = false;  // After the end or an error, which stays last in `ready`.
  };
  void start();
  void stop();
  void work();
  Queue* emptiest();

  std::vector<Queue> queues_;
  const int64_t num_threads_;
  const size_t ahead_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::condition_variable row_made_, row_taken_;
  bool stopping_ = false;
};

}  // namespace tessera
