// SPDX-License-Identifier: Apache-2.0
#include "inputs/prefetch.h"

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/seconds.h"

namespace tessera {

Prefetch::Prefetch(std::unique_ptr<BaseInput> input, int64_t depth)
    : WrappedInput(std::move(input)), depth_(static_cast<size_t>(depth)) {
  CHECK(depth >= 1, "prefetch depth {}", depth);
}

void Prefetch::prepare_with(std::function<void(Batch& batch, int64_t number)> prepare) {
  CHECK(!thread_.joinable(), "this is set after the first batch");
  prepare_ = std::move(prepare);
}

void Prefetch::start() {
  if (thread_.joinable()) return;
  returned_state_ = input_->state();
  thread_ = start_thread([this](const std::stop_token& stop) { produce(stop); });
}

void Prefetch::stop() {
  thread_ = {};  // Stops and joins it.
  ready_.clear();
}

Prefetch::Item Prefetch::make_item(std::vector<Batch> returned) {
  Item item;
  try {
    for (Batch& batch : returned) input_->recycle(std::move(batch));
    item.batch = input_->get_next();
    if (item.batch && prepare_) prepare_(*item.batch, input_->state().position - 1);
    item.state_after = input_->state();
  } catch (...) {
    item.error = std::current_exception();
  }
  return item;
}

void Prefetch::produce(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait(lock, stop, [&] { return ready_.size() < depth_; });
    if (stop.stop_requested()) return;
    std::vector<Batch> returned = std::exchange(returned_, {});
    lock.unlock();
    Item item = make_item(std::move(returned));
    lock.lock();
    last = item.error || !item.batch;  // This item stays at the front.
    ready_.push_back(std::move(item));
    changed_.notify_all();
  }
}

Prefetch::Item& Prefetch::wait_front(std::unique_lock<std::mutex>& lock) {
  start();
  lock.lock();
  if (ready_.empty()) {
    const auto begin = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return !ready_.empty(); });
    wait_seconds_ += seconds_since(begin);
  }
  Item& front = ready_.front();
  if (front.error) std::rethrow_exception(front.error);
  return front;
}

std::optional<Batch> Prefetch::get_next() {
  std::unique_lock lock(mutex_, std::defer_lock);
  Item& front = wait_front(lock);
  if (!front.batch) {
    returned_state_ = front.state_after;
    return std::nullopt;
  }
  returned_state_ = std::move(front.state_after);
  std::optional<Batch> batch = std::move(front.batch);
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

std::optional<Batch> Prefetch::peek() {
  std::unique_lock lock(mutex_, std::defer_lock);
  return wait_front(lock).batch;
}

void Prefetch::recycle(Batch batch) {
  const std::lock_guard lock(mutex_);
  if (returned_.size() < depth_) returned_.push_back(std::move(batch));
}

bool Prefetch::await_next() {
  std::unique_lock lock(mutex_, std::defer_lock);
  return wait_front(lock).batch.has_value();
}

void Prefetch::reset() {
  stop();
  input_->reset();
}

InputState Prefetch::state() const {
  return thread_.joinable() ? returned_state_ : input_->state();
}

void Prefetch::restore(const InputState& state) {
  stop();
  input_->restore(state);
}

double Prefetch::take_wait_seconds() {
  const double seconds = wait_seconds_;
  wait_seconds_ = 0.0;
  return seconds;
}

}  // namespace tessera
