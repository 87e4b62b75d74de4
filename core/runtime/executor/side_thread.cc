// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/side_thread.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/runtime/executor/prompt_thread.h"

namespace tessera {

SideThread::SideThread(std::function<void(int64_t)> work)
    : work_(std::move(work)), thread_(start_thread([this] { serve(); })) {}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  started_changed_.notify_all();
  thread_.join();
}

void SideThread::begin() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  CHECK(done_ == started_, "a round begins with {} of {} pieces of the last done", done_, started_);
  started_ = done_ = 0;
}

void SideThread::start() {
  {
    const std::lock_guard lock(mutex_);
    ++started_;
  }
  started_changed_.notify_one();
}

void SideThread::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  done_changed_.wait(lock, [&] { return done_ > number || error_; });
  if (done_ <= number) std::rethrow_exception(error_);
}

void SideThread::serve() {
  make_thread_prompt();
  std::unique_lock lock(mutex_);
  while (true) {
    started_changed_.wait(lock, [&] { return leaving_ || (done_ < started_ && !error_); });
    if (leaving_) return;
    const int64_t number = done_;
    lock.unlock();
    std::exception_ptr error;
    try {
      work_(number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ++done_;
    }
    done_changed_.notify_all();
  }
}

}  // namespace tessera
