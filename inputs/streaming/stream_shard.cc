// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/stream_shard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {

std::string stream_cursor_text(const StreamCursor& place) {
  return fmt::format("{} {} {} {} {}", place.document.unit, place.document.block.document,
                     place.document.block.offset, place.document.index, place.tokens);
}

StreamCursor parse_stream_cursor(const std::string& text, const std::string& what) {
  std::array<int64_t, 5> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] < 0)
      fail("{} is '{}'; expected five integers: unit, document, offset, index, tokens", what, text);
    at = next;
  }
  if (at != end) fail("{} is '{}'; expected five integers", what, text);
  const auto [unit, document, offset, index, tokens] = numbers;
  return {{.unit = unit, .block = {document, offset}, .index = index, .corrupt = {}}, tokens};
}

StreamShard::StreamShard(std::shared_ptr<const TextShards> shards, const Tokenizer& tokenizer,
                         const Options& options, int64_t row)
    : tokenizer_(tokenizer), options_(options), documents_(std::move(shards), row) {}

void StreamShard::restore(const StreamCursor& place) {
  documents_.restore(place.document);
  pieces_.clear();
  available_ = 0;
  skip_ = static_cast<size_t>(place.tokens);
  resumed_ = place.document;
}

StreamCursor StreamShard::place() const {
  if (pieces_.empty()) return {documents_.place(), static_cast<int64_t>(skip_)};
  return {pieces_.front().place, static_cast<int64_t>(pieces_.front().used)};
}

// False at the end of the documents.
bool StreamShard::add_document() {
  std::optional<ShardReader::Document> document = documents_.next();
  if (!document) return false;
  Piece piece{std::move(document->place), tokenizer_.encode(document->text), skip_};
  if (options_.end_of_document == EndOfDocument::kAuto)
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

std::vector<uint32_t> StreamShard::next_row() {
  const auto seq_len = static_cast<size_t>(options_.seq_len);
  const auto wanted = static_cast<size_t>(tokens_per_row(options_.labels, options_.seq_len));
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

StreamWorkers::StreamWorkers(std::vector<std::unique_ptr<StreamShard>> shards, int64_t threads,
                             int64_t ahead)
    : num_threads_(threads), ahead_(static_cast<size_t>(ahead)) {
  CHECK(threads >= 1 && ahead >= 1, "{} threads, {} rows ahead", threads, ahead);
  for (std::unique_ptr<StreamShard>& shard : shards) {
    Queue& added = queues_.emplace_back();
    added.returned = shard->place();
    added.shard = std::move(shard);
  }
}

StreamWorkers::~StreamWorkers() { stop(); }

void StreamWorkers::start() {
  if (!threads_.empty()) return;
  stopping_ = false;
  const auto count = std::min(static_cast<size_t>(num_threads_), queues_.size());
  try {
    for (size_t i = 0; i < count; ++i) threads_.push_back(start_thread([this] { work(); }));
  } catch (const Error&) {
    if (threads_.empty()) throw;  // Fewer threads produce the same rows.
  }
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

void StreamWorkers::restart() {
  std::vector<StreamCursor> places;
  for (const Queue& queue : queues_) places.push_back(queue.shard->begin());
  restart(places);
}

void StreamWorkers::restart(const std::vector<StreamCursor>& places) {
  CHECK(places.size() == queues_.size());
  stop();
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].shard->restore(places[i]);
    queues_[i].returned = places[i];
    queues_[i].ready.clear();
    queues_[i].finished = false;
  }
}

StreamWorkers::Queue* StreamWorkers::emptiest() {
  Queue* emptiest = nullptr;
  for (Queue& queue : queues_)
    if (!queue.busy && !queue.finished && queue.ready.size() < ahead_ &&
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

const std::vector<uint32_t>& StreamWorkers::front(size_t shard) {
  start();
  std::unique_lock lock(mutex_);
  std::deque<Row>& ready = queues_[shard].ready;
  row_made_.wait(lock, [&] { return !ready.empty(); });
  if (ready.front().error) std::rethrow_exception(ready.front().error);
  return ready.front().tokens;
}

void StreamWorkers::pop(size_t shard) {
  const std::lock_guard lock(mutex_);
  std::deque<Row>& ready = queues_[shard].ready;
  CHECK(!ready.empty() && !ready.front().error);
  queues_[shard].returned = std::move(ready.front().after);
  if (ready.front().tokens.empty()) return;  // The end stays at the front.
  ready.pop_front();
  row_taken_.notify_one();
}

StreamCursor StreamWorkers::place(size_t shard) const {
  const std::lock_guard lock(mutex_);
  return queues_[shard].returned;
}

}  // namespace tessera
