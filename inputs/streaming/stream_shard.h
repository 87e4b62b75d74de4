// SPDX-License-Identifier: Apache-2.0
// The token stream of one row of the global batch: tokenises its documents and cuts the tokens into
// rows. A document continues in the next row, so no token is dropped.
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

#include "inputs/streaming/shard_reader.h"
#include "inputs/token_row.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// Whether to append the tokenizer's `end_id` to each document.
enum class EndOfDocument {
  kAuto,  // If the tokenizer has one.
  kNone,
};

constexpr std::array<EnumName<EndOfDocument>, 2> enum_names(EndOfDocument) {
  return {{{EndOfDocument::kAuto, "auto"}, {EndOfDocument::kNone, "none"}}};
}

// The position of a row's stream: a document, and a token in it.
struct StreamCursor {
  DocumentCursor document;
  int64_t tokens = 0;  // Tokens of the document already returned.
};

// The checkpoint form: "<unit> <document> <offset> <index> <tokens>". Counts of corrupt records are
// stored separately (base_input.h).
std::string stream_cursor_text(const StreamCursor& place);
// Error if malformed; `what` names the text in messages.
StreamCursor parse_stream_cursor(const std::string& text, const std::string& what);

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

  // At most tokens_per_row encoded tokens of the next row; empty at the end of a finite set.
  std::vector<uint32_t> next_row();
  StreamCursor place() const;  // Of the next row.
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

  // The next row of a shard; empty at its end. Blocks, and rethrows the shard's exception.
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
