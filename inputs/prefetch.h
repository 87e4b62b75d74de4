// SPDX-License-Identifier: Apache-2.0
// Makes batches on a thread of its own, a few ahead of training. To its user it is the input it
// wraps: same batches, and a state that counts what was given out, not what was made.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "inputs/base_input.h"

namespace tessera {

class Prefetch final : public BaseInput {
 public:
  // `depth` batches at most are held ready.
  explicit Prefetch(std::unique_ptr<BaseInput> input, int64_t depth = 4);
  ~Prefetch() override;

  const std::string& name() const override { return input_->name(); }
  int64_t global_batch_size() const override { return input_->global_batch_size(); }
  void attach(const Infeed& infeed) override { input_->attach(infeed); }
  int64_t vocab_size() const override { return input_->vocab_size(); }
  bool repeats() const override { return input_->repeats(); }
  Batch specification() const override { return input_->specification(); }
  // An exception of the input comes out of the call that would have given the batch it broke, and
  // of every later one until `reset` or `restore`.
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  // Waits until get_next need not; throws what it would throw. Whether there is a batch.
  bool await_next();
  void reset() override;
  InputState state() const override;
  void restore(const InputState& state) override;
  void recycle(Batch batch) override;
  const Tokenizer* tokenizer() const override { return input_->tokenizer(); }
  std::vector<std::string> sources() const override { return input_->sources(); }

  // Seconds that get_next, peek and await_next have waited for the thread since this was last
  // asked.
  double take_wait_seconds();

 private:
  // What the thread hands over: a batch, the end (no batch) or an exception, and the input's state
  // once it is given out.
  struct Item {
    std::optional<Batch> batch;
    std::exception_ptr error;
    InputState state_after;
  };
  void start();
  void stop();
  void produce();
  Item make_item(std::vector<Batch> returned);
  // Waits for the front item, starting the thread if there is none; rethrows its exception.
  Item& wait_front(std::unique_lock<std::mutex>& lock);

  std::unique_ptr<BaseInput> input_;  // The thread's alone while it runs.
  const size_t depth_;
  InputState given_out_;
  double wait_seconds_ = 0.0;

  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> ready_;
  std::vector<Batch> returned_;  // On their way back to the input.
  bool stopping_ = false;
};

}  // namespace tessera
