// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/stream_shard.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/hparams/convert.h"

namespace tessera {
namespace {

// A block also ends at this size, because its text is held in memory.
constexpr size_t kMaxBlockBytes = size_t{16} << 20;

}  // namespace

// Reads the documents of one lane of a stream of text, one after another and epoch after epoch. The
// sequence is a pure function of the lane, and any document can be returned to.
class ShardReader {
 public:
  ShardReader(std::shared_ptr<const TextShards> shards, int64_t lane)
      : shards_(std::move(shards)), lane_(lane) {
    restore({.unit = lane, .block = {}, .index = 0, .corrupt = {}});
  }

  struct Document {
    std::string text;      // Not empty.
    int64_t number = 0;    // Index in its shard.
    DocumentCursor place;  // Restoring it makes `next` return this document.
  };
  // Returns nullopt at the end of a finite set. Error if the lane has no document in two epochs.
  std::optional<Document> next() {
    for (;;) {
      if (at_end()) return std::nullopt;
      if (!block_read_) read_block();
      if (static_cast<size_t>(place_.index) < block_.size()) {
        idle_units_ = 0;
        BlockText& block_text = block_[static_cast<size_t>(place_.index)];
        Document document{std::move(block_text.text), block_text.number, place_};
        if (static_cast<size_t>(++place_.index) == block_.size()) leave_block();
        return document;
      }
      const bool unit_ended = block_.empty();
      leave_block();
      if (unit_ended) leave_unit();
    }
  }

  const DocumentCursor& place() const { return place_; }  // Position of the next document.

  void restore(const DocumentCursor& place) {
    reader_.reset();
    block_.clear();
    block_read_ = false;
    idle_units_ = 0;
    place_ = place;
  }

  std::string shard_name(int64_t unit) const {
    return shards_->files[static_cast<size_t>(shards_->order(unit).shard)].path.string();
  }

  // Skips a document that cannot be tokenised, or Error, as configured for corrupt records.
  void skip_document(const Document& document, const Error& error) {
    const std::string shard = shard_name(document.place.unit);
    const std::string place = document_place(shard, document_format(shard, shards_->format),
                                             shards_->read, document.number);
    skip_or_fail(shards_->read.corrupt_records, fmt::format("{}: {}", place, error.what()),
                 kTooSlow, &corrupt_before_);
  }

 private:
  bool at_end() const {
    return !shards_->repeat && place_.unit >= shards_->order.units_per_epoch();
  }

  // Reads the block at place_; an empty block is the end of the unit.
  void read_block() {
    if (!reader_) open_unit();
    block_.clear();
    size_t bytes = 0;
    while (static_cast<int64_t>(block_.size()) < shards_->shuffle_block && bytes < kMaxBlockBytes) {
      if (is_past_held_out()) break;
      std::optional<std::string> text = reader_->next();
      if (!text) break;
      const int64_t number = reader_->position().document - 1;
      if (!is_wanted(*text, number)) continue;
      bytes += text->size();
      block_.push_back({std::move(*text), number});
    }
    block_read_ = true;
    if (place_.index > 0 && static_cast<size_t>(place_.index) >= block_.size())
      fail("{}: only {} documents after document {}; there were more when the checkpoint was saved",
           shard_name(place_.unit), block_.size(), place_.block.document);
    if (shards_->shuffle_block > 1 && block_.size() > 1) shuffle();
  }

  // Leaves the block: the cursor becomes the reader's position.
  void leave_block() {
    block_read_ = false;
    place_.block = reader_->position();
    place_.index = 0;
    place_.corrupt = corrupt_before_;
    place_.corrupt.add(reader_->corrupt());
  }

  void open_unit() {
    const ShardOrder::Unit unit = shards_->order(place_.unit);
    ReadOptions read = shards_->read;
    read.every = shards_->order.parts();
    read.first = unit.part;
    reader_ =
        open_documents(shards_->files[static_cast<size_t>(unit.shard)].path, read, shards_->format);
    reader_->seek(place_.block);
    corrupt_before_ = place_.corrupt;
  }

  // Advances to the next unit of this lane.
  void leave_unit() {
    reader_.reset();
    place_.unit += shards_->order.rows();
    place_.block = {};
    const int64_t units = shards_->order.units_per_epoch(), rows = shards_->order.rows();
    if (++idle_units_ < 2 * ((units + rows - 1) / rows) || !shards_->repeat) return;
    std::string corrupt;
    if (place_.corrupt.count > 0)
      corrupt = fmt::format("; {} could not be read, the first: {}", place_.corrupt.count,
                            place_.corrupt.first);
    fail(
        "row {} of a batch of {} found no document of split '{}' in two epochs of {} shard{} ({}, "
        "…): there are fewer documents than rows{}. Split long texts with `separator`, lower "
        "global_batch_size, or use TextInput, which packs all documents",
        lane_, rows, enum_name(shards_->split), shards_->files.size(),
        shards_->files.size() == 1 ? "" : "s", shards_->files[0].path.string(), corrupt);
  }

  // Whether a validation split has no more documents of this file, so that the rest is not read.
  bool is_past_held_out() const {
    const int64_t held_out = shards_->validation_docs_per_file, every = shards_->order.parts();
    if (shards_->split != StreamSplit::kValidation || held_out == 0) return false;
    const int64_t at = reader_->position().document, part = shards_->order(place_.unit).part;
    return at + (part - at % every + every) % every >= held_out;
  }

  // `number`: of the document in its file.
  bool is_wanted(const std::string& text, int64_t number) const {
    if (text.empty()) return false;
    if (shards_->split == StreamSplit::kAll) return true;
    const bool held_out = shards_->validation_docs_per_file > 0
                              ? number < shards_->validation_docs_per_file
                              : in_validation_split(text, shards_->validation_fraction);
    return held_out == (shards_->split == StreamSplit::kValidation);
  }

  // Shuffles with the block's position as key, so that a re-read block has the same order.
  void shuffle() {
    const uint64_t key = mix_bits(static_cast<uint64_t>(place_.block.document),
                                  mix_bits(static_cast<uint64_t>(place_.unit), shards_->seed));
    const Permutation order(static_cast<int64_t>(block_.size()), key, 0);
    std::vector<BlockText> shuffled;
    for (size_t i = 0; i < block_.size(); ++i)
      shuffled.push_back(std::move(block_[static_cast<size_t>(order(static_cast<int64_t>(i)))]));
    block_ = std::move(shuffled);
  }

  std::shared_ptr<const TextShards> shards_;
  int64_t lane_;
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

std::string stream_cursor_text(const StreamCursor& place) {
  return fmt::format("{} {} {} {} {}", place.document.unit, place.document.block.document,
                     place.document.block.offset, place.document.index, place.tokens);
}

StreamCursor parse_stream_cursor(const std::string& text, const std::string& what) {
  std::vector<int64_t> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ' ');)
    numbers.push_back(parse_integer(word).value_or(-1));
  if (numbers.size() != 5 || std::ranges::min(numbers) < 0 || text.ends_with(' '))
    fail("{} is '{}'; expected five integers: unit, document, offset, index, tokens", what, text);
  return {
      {.unit = numbers[0], .block = {numbers[1], numbers[2]}, .index = numbers[3], .corrupt = {}},
      numbers[4]};
}

// The token stream of one lane. A document continues in the next row, so no token is dropped.
class StreamShard {
 public:
  StreamShard(const std::shared_ptr<const TextShards>& shards, const Tokenizer& tokenizer,
              int64_t lane)
      : shards_(shards), tokenizer_(tokenizer), documents_(shards, lane) {}

  void restore(const StreamCursor& place) {
    documents_.restore(place.document);
    pieces_.clear();
    available_ = 0;
    skip_ = static_cast<size_t>(place.tokens);
    resumed_ = place.document;
  }

  // Returns at most tokens_per_row encoded tokens of the next row; empty at the end of a finite
  // set.
  std::vector<uint32_t> next_row() {
    const auto seq_len = static_cast<size_t>(shards_->seq_len);
    const auto wanted = static_cast<size_t>(tokens_per_row(shards_->labels, shards_->seq_len));
    while (available_ < wanted && add_document()) {
    }
    if (available_ <= wanted - seq_len) return {};  // Too few tokens for a label.

    std::vector<uint32_t> row;
    row.reserve(std::min(available_, wanted));
    for (const Piece& piece : pieces_) {
      for (size_t i = piece.used; i < piece.ids.size() && row.size() < wanted; ++i)
        row.push_back(encode_token(piece.ids[i], i == 0));
      if (row.size() == wanted) break;
    }
    // The extra token of kNextToken is also the first token of the next row.
    for (size_t left = std::min(seq_len, available_); left > 0;) {
      Piece& front = pieces_.front();
      const size_t taken = std::min(left, front.ids.size() - front.used);
      front.used += taken;
      left -= taken;
      available_ -= taken;
      if (front.used == front.ids.size()) pieces_.pop_front();
    }
    return row;
  }

  // Position of the next row.
  StreamCursor place() const {
    if (pieces_.empty()) return {documents_.place(), static_cast<int64_t>(skip_)};
    return {pieces_.front().place, static_cast<int64_t>(pieces_.front().used)};
  }

 private:
  struct Piece {
    DocumentCursor place;
    std::vector<int32_t> ids;
    size_t used = 0;
  };

  // Returns false at the end of the documents.
  bool add_document() {
    std::optional<ShardReader::Document> document = documents_.next();
    if (!document) return false;
    Piece piece{document->place, {}, skip_};
    try {
      tokenizer_.encode(document->text, &piece.ids);
    } catch (const TextLimitError& error) {
      documents_.skip_document(*document, error);
      return true;
    }
    if (shards_->end_of_document == EndOfDocument::kAuto)
      if (const std::optional<int32_t> end = tokenizer_.end_id()) piece.ids.push_back(*end);
    const bool is_resumed = piece.place.unit == resumed_.unit &&
                            piece.place.block.document == resumed_.block.document &&
                            piece.place.index == resumed_.index;
    if (skip_ > 0 && (!is_resumed || skip_ >= piece.ids.size()))
      fail(
          "the text has changed since the checkpoint: a document after number {} of shard {}, of "
          "which {} tokens were read, is now missing or shorter",
          resumed_.block.document, documents_.shard_name(resumed_.unit), skip_);
    skip_ = 0;
    if (piece.ids.empty()) return true;
    available_ += piece.ids.size() - piece.used;
    pieces_.push_back(std::move(piece));
    return true;
  }

  std::shared_ptr<const TextShards> shards_;
  const Tokenizer& tokenizer_;
  ShardReader documents_;
  std::deque<Piece> pieces_;  // Each has unused tokens.
  size_t available_ = 0;      // Unused tokens in pieces_.
  // Tokens to skip of the document at `resumed_`, which were returned before; 0 once it is read.
  size_t skip_ = 0;
  DocumentCursor resumed_;
};

StreamWorkers::StreamWorkers(const std::shared_ptr<const TextShards>& shards,
                             const Tokenizer& tokenizer, const std::vector<int64_t>& lanes)
    : num_threads_(shards->threads), ahead_(static_cast<size_t>(shards->rows_ahead)) {
  CHECK(shards->threads >= 1 && shards->rows_ahead >= 1, "{} threads, {} rows ahead",
        shards->threads, shards->rows_ahead);
  for (const int64_t lane : lanes) {
    Queue& added = queues_.emplace_back();
    added.shard = std::make_unique<StreamShard>(shards, tokenizer, lane);
    added.returned = added.shard->place();
  }
}

StreamWorkers::~StreamWorkers() { stop(); }

void StreamWorkers::start() {
  if (!threads_.empty()) return;
  stopping_ = false;
  // Fewer threads produce the same rows.
  threads_ = start_threads(std::min(num_threads_, std::ssize(queues_)), [this] { work(); });
}

void StreamWorkers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  row_taken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void StreamWorkers::restart(const std::vector<StreamCursor>& places) {
  CHECK(places.size() == queues_.size());
  stop();
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].shard->restore(places[i]);
    queues_[i].returned = places[i];
    queues_[i].ready.clear();
    queues_[i].requested = 0;
    queues_[i].finished = false;
  }
}

StreamWorkers::Queue* StreamWorkers::emptiest() {
  Queue* emptiest = nullptr;
  for (Queue& queue : queues_)
    if (!queue.busy && !queue.finished && queue.ready.size() < std::max(ahead_, queue.requested) &&
        (emptiest == nullptr || queue.ready.size() < emptiest->ready.size()))
      emptiest = &queue;
  return emptiest;
}

void StreamWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Queue* queue = nullptr;
    row_taken_.wait(lock, [&] { return stopping_ || (queue = emptiest()) != nullptr; });
    if (stopping_) return;
    queue->busy = true;
    lock.unlock();
    Row row;
    try {
      row.tokens = queue->shard->next_row();
      row.after = queue->shard->place();
    } catch (...) {
      row.error = std::current_exception();
    }
    lock.lock();
    queue->busy = false;
    queue->finished = row.error || row.tokens.empty();
    queue->ready.push_back(std::move(row));
    row_made_.notify_all();
  }
}

const std::vector<uint32_t>& StreamWorkers::row(size_t shard, int64_t index) {
  start();
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[shard];
  const auto at = static_cast<size_t>(index);
  queue.requested = at + 1;
  if (queue.requested > ahead_) row_taken_.notify_one();
  row_made_.wait(lock, [&] { return queue.ready.size() > at || queue.finished; });
  const Row& row = queue.ready[std::min(at, queue.ready.size() - 1)];
  if (row.error) std::rethrow_exception(row.error);
  return row.tokens;
}

void StreamWorkers::pop(size_t shard) {
  const std::lock_guard lock(mutex_);
  std::deque<Row>& ready = queues_[shard].ready;
  CHECK(!ready.empty() && !ready.front().error);
  queues_[shard].returned = ready.front().after;
  if (ready.front().tokens.empty()) return;  // The end stays at the front.
  ready.pop_front();
  row_taken_.notify_one();
}

StreamCursor StreamWorkers::place(size_t shard) const {
  const std::lock_guard lock(mutex_);
  return queues_[shard].returned;
}

}  // namespace tessera
