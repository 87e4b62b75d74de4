// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/device_threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {
namespace {

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& each) {
    return error_text(each);
  } catch (...) {
    return "an exception of unknown kind";
  }
}

}  // namespace

struct DeviceThreads::Shared {
  std::mutex mutex;
  std::condition_variable start, finish;
  int64_t round = 0;  // Incremented to start work.
  std::vector<bool> busy;
  bool leaving = false;
  bool lost = false;
  std::function<void(int64_t)> work;
  std::function<void(const std::string&)> on_error;
  std::exception_ptr error;  // The first error of this round.
  std::vector<std::thread> threads;

  bool is_idle() const { return std::ranges::find(busy, true) == busy.end(); }

  void record(const std::exception_ptr& thrown) {
    std::function<void(const std::string&)> tell;
    {
      const std::lock_guard lock(mutex);
      if (error) return;
      error = thrown;
      tell = on_error;
    }
    finish.notify_all();
    if (tell) tell(reason_of(thrown));
  }

  void serve(int64_t device) {
    for (int64_t seen = 0;; ++seen) {
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return leaving || round > seen; });
        if (leaving) return;
      }
      try {
        work(device);
      } catch (...) {
        record(std::current_exception());
      }
      const std::lock_guard lock(mutex);
      busy[static_cast<size_t>(device)] = false;
      if (is_idle()) finish.notify_all();
    }
  }
};

DeviceThreads::DeviceThreads(int64_t devices, std::chrono::milliseconds grace)
    : grace_(grace), shared_(std::make_shared<Shared>()) {
  CHECK(devices > 0);
  shared_->busy.resize(static_cast<size_t>(devices));
  if (devices == 1) return;
  shared_->threads.reserve(static_cast<size_t>(devices));
  try {
    for (int64_t device = 0; device < devices; ++device)
      shared_->threads.push_back(
          start_thread([shared = shared_, device] { shared->serve(device); }));
  } catch (...) {
    end_threads();
    throw;
  }
}

DeviceThreads::~DeviceThreads() { end_threads(); }

void DeviceThreads::end_threads() {
  std::vector<bool> busy;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->leaving = true;
    busy = shared_->busy;
  }
  shared_->start.notify_all();
  for (size_t device = 0; device < shared_->threads.size(); ++device) {
    // A thread that was given up shares ownership of the objects it uses.
    if (busy[device]) {
      shared_->threads[device].detach();
    } else {
      shared_->threads[device].join();
    }
  }
}

bool DeviceThreads::is_lost() const { return shared_->lost; }

void DeviceThreads::run(const std::function<void(int64_t)>& work,
                        const std::function<void(const std::string&)>& on_error) {
  Shared& shared = *shared_;
  if (shared.threads.empty()) {
    try {
      work(0);
    } catch (...) {
      on_error(reason_of(std::current_exception()));
      throw;
    }
    return;
  }
  std::unique_lock lock(shared.mutex);
  if (shared.lost) fail("a device of this run hangs; nothing more can be run");
  shared.work = work;
  shared.on_error = on_error;
  shared.error = nullptr;
  shared.busy.assign(shared.busy.size(), true);
  ++shared.round;
  shared.start.notify_all();
  shared.finish.wait(lock, [&] { return shared.is_idle() || shared.error; });
  if (!shared.error) return;
  if (!shared.finish.wait_for(lock, grace_, [&] { return shared.is_idle(); })) shared.lost = true;
  std::rethrow_exception(shared.error);
}

}  // namespace tessera
