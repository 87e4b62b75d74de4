// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/lane_workers.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {

LaneWorkers::LaneWorkers(std::vector<std::unique_ptr<TextLane>> lanes, int64_t threads,
                         int64_t ahead)
    : num_threads_(threads), ahead_(static_cast<size_t>(ahead)) {
  CHECK(threads >= 1 && ahead >= 1, "{} threads, {} rows ahead", threads, ahead);
  for (std::unique_ptr<TextLane>& lane : lanes) {
    Lane& added = lanes_.emplace_back();
    added.given_out = lane->place();
    added.lane = std::move(lane);
  }
}

LaneWorkers::~LaneWorkers() { stop(); }

void LaneWorkers::start() {
  if (!threads_.empty()) return;
  stopping_ = false;
  const auto count = std::min(static_cast<size_t>(num_threads_), lanes_.size());
  try {
    for (size_t i = 0; i < count; ++i) threads_.push_back(start_thread([this] { work(); }));
  } catch (const Error&) {
    if (threads_.empty()) throw;  // Fewer make the same rows.
  }
}

void LaneWorkers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  row_taken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void LaneWorkers::restart() {
  std::vector<LanePlace> places;
  for (const Lane& lane : lanes_) places.push_back(lane.lane->begin());
  restart(places);
}

void LaneWorkers::restart(const std::vector<LanePlace>& places) {
  CHECK(places.size() == lanes_.size());
  stop();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].lane->restore(places[i]);
    lanes_[i].given_out = places[i];
    lanes_[i].ready.clear();
    lanes_[i].finished = false;
  }
}

LaneWorkers::Lane* LaneWorkers::neediest() {
  Lane* neediest = nullptr;
  for (Lane& lane : lanes_)
    if (!lane.busy && !lane.finished && lane.ready.size() < ahead_ &&
        (neediest == nullptr || lane.ready.size() < neediest->ready.size()))
      neediest = &lane;
  return neediest;
}

void LaneWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Lane* lane = nullptr;
    row_taken_.wait(lock, [&] { return stopping_ || (lane = neediest()) != nullptr; });
    if (stopping_) return;
    lane->busy = true;
    lock.unlock();
    Row row;
    try {
      row.tokens = lane->lane->next_row();
      row.after = lane->lane->place();
    } catch (...) {
      row.error = std::current_exception();
    }
    lock.lock();
    lane->busy = false;
    lane->finished = row.error || row.tokens.empty();
    lane->ready.push_back(std::move(row));
    row_made_.notify_all();
  }
}

const std::vector<uint32_t>& LaneWorkers::front(size_t lane) {
  start();
  std::unique_lock lock(mutex_);
  std::deque<Row>& ready = lanes_[lane].ready;
  row_made_.wait(lock, [&] { return !ready.empty(); });
  if (ready.front().error) std::rethrow_exception(ready.front().error);
  return ready.front().tokens;
}

void LaneWorkers::pop(size_t lane) {
  const std::lock_guard lock(mutex_);
  std::deque<Row>& ready = lanes_[lane].ready;
  CHECK(!ready.empty() && !ready.front().error);
  lanes_[lane].given_out = std::move(ready.front().after);
  if (ready.front().tokens.empty()) return;  // The end stays the end.
  ready.pop_front();
  row_taken_.notify_one();
}

LanePlace LaneWorkers::place(size_t lane) const {
  const std::lock_guard lock(mutex_);
  return lanes_[lane].given_out;
}

}  // namespace tessera
