// SPDX-License-Identifier: Apache-2.0
// The stream of one lane: reads its documents, tokenises them and cuts the tokens into rows, on
// background threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/document_reader.h"
#include "inputs/readers/text_files.h"
#include "inputs/shuffle.h"
#include "inputs/token_row.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// The documents to read.
enum class StreamSplit { kTrain, kValidation, kAll };

// Whether to append the tokenizer's `end_id` to each document.
enum class EndOfDocument {
  kAuto,  // If the tokenizer has one.
  kNone,
};

// Shared by all lanes.
struct TextShards {
  std::vector<TextFile> files;
  ShardOrder order;
  ReadOptions read;
  std::string format = std::string(kAutoFormat);
  StreamSplit split = StreamSplit::kTrain;
  double validation_fraction = 0.0;      // By in_validation_split(), unless
  int64_t validation_docs_per_file = 0;  // the first so many of each file are held out.
  bool repeat = true;
  // Shuffles documents within blocks of this many; 1: no shuffling.
  int64_t shuffle_block = 1;
  uint64_t seed = 0;
  Labels labels = Labels::kNextToken;
  int64_t seq_len = 0;
  EndOfDocument end_of_document = EndOfDocument::kAuto;
  int64_t threads = 1;
  int64_t rows_ahead = 1;  // The maximum number of rows queued per lane, unless more are requested.
};

// The position of a document.
struct DocumentCursor {
  int64_t unit = 0;            // Unit number of ShardOrder.
  ShardPosition block;         // Beginning of the document's block in the unit.
  int64_t index = 0;           // Index in the (shuffled) block.
  CorruptRecordCount corrupt;  // Skipped by this lane before the block.
};

// The position of a lane: a document, and a token in it.
struct StreamCursor {
  DocumentCursor document;
  int64_t tokens = 0;  // Tokens of the document already returned.
};

// Formats a cursor for checkpoints: "<unit> <document> <offset> <index> <tokens>". Counts of
// corrupt records are stored separately (base_input.h).
std::string stream_cursor_text(const StreamCursor& place);
// Error if malformed; `what` names the text in messages.
StreamCursor parse_stream_cursor(const std::string& text, const std::string& what);

class StreamShard;

// Threads that fill rows of several stream shards, one for each of `lanes`, ahead of use, the
// emptiest queue first. The rows do not depend on the threads.
class StreamWorkers {
 public:
  // The tokenizer must outlive it.
  StreamWorkers(const std::shared_ptr<const TextShards>& shards, const Tokenizer& tokenizer,
                const std::vector<int64_t>& lanes);
  ~StreamWorkers();

  // Returns a row of a shard, of which 0 is the next; empty after its end. Blocks, and rethrows the
  // shard's exception.
  const std::vector<uint32_t>& row(size_t shard, int64_t index);
  void pop(size_t shard);                  // A row that was returned.
  StreamCursor place(size_t shard) const;  // After the rows popped.
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
    size_t requested = 0;  // Rows.
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
