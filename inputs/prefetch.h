// SPDX-License-Identifier: Apache-2.0
// Prefetches batches of an input on a background thread. Batches and states are those of the
// wrapped input: the state counts batches returned, not batches prefetched.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "inputs/wrapped_input.h"

namespace tessera {

class Prefetch final : public WrappedInput {
 public:
  // Prefetches up to `depth` batches.
  explicit Prefetch(std::unique_ptr<BaseInput> input, int64_t depth = 4);
  // Calls `prepare` with each batch and its number before the batch is returned; an exception of
  // `prepare` counts as one of the input. Call this before the first batch is requested.
  void prepare_with(std::function<void(Batch& batch, int64_t number)> prepare);

  // An exception of the input is rethrown by the call that would return the failed batch, and by
  // all later calls until `reset` or `restore`.
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  // Blocks until get_next would not; throws its exception. Returns whether there is a batch.
  bool await_next();
  void reset() override;
  InputState state() const override;
  void restore(const InputState& state) override;
  void recycle(Batch batch) override;

  // Returns the seconds that get_next, peek and await_next have blocked since the last call.
  double take_wait_seconds();

 private:
  // A batch, the end (no batch) or an exception, and the input's state after it.
  struct Item {
    std::optional<Batch> batch;
    std::exception_ptr error;
    InputState state_after;
  };
  void start();
  void stop();
  void produce(const std::stop_token& stop);
  Item make_item(std::vector<Batch> returned);
  // Starts the thread if needed, waits for the front item, and rethrows its exception.
  Item& wait_front(std::unique_lock<std::mutex>& lock);

  // The wrapped input is used only by the thread while it runs.
  std::function<void(Batch& batch, int64_t number)> prepare_;
  const size_t depth_;
  InputState returned_state_;
  double wait_seconds_ = 0.0;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Item> ready_;
  std::vector<Batch> returned_;  // Recycled batches for the input.
  std::jthread thread_;
};

}  // namespace tessera
