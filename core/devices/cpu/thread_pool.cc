// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/thread_pool.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {
namespace {

// Workers spin this long before they sleep: longer than the gaps between the launches of a step,
// but an idle pool does not keep processors busy.
constexpr auto kSpin = std::chrono::microseconds(60);

std::atomic<uint32_t> forks{0};

// Number of threads in all pools of this process, callers included.
std::atomic<int> pool_threads{0};

void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  CHECK(registered == 0);
}

void pause_briefly() {
#if defined(__x86_64__)
  for (int i = 0; i < 16; ++i) _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until `word` differs from `old`: spins for a while if every thread has its own processor,
// then sleeps. (With fewer processors, a spinning thread may occupy the one that it waits for.)
uint32_t await_change(const std::atomic<uint32_t>& word, uint32_t old) {
  if (pool_threads.load(std::memory_order_relaxed) <= usable_processors()) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        const uint32_t now = word.load(std::memory_order_acquire);
        if (now != old) return now;
        pause_briefly();
      }
    } while (std::chrono::steady_clock::now() < deadline);
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

Range part_of(int64_t count, int thread, int threads, int64_t grain) {
  const int64_t grains = (count + grain - 1) / grain;
  const auto edge = [&](int64_t t) { return std::min(count, grains * t / threads * grain); };
  return {edge(thread), edge(thread + 1)};
}

struct ThreadPool::Shared {
  alignas(64) std::atomic<uint32_t> epoch{0};  // Advanced to start work.
  alignas(64) std::atomic<uint32_t> done{0};   // Workers that have finished, over all epochs.
  alignas(64) Call call = nullptr;             // Null: exit.
  const void* context = nullptr;
  std::mutex failing;
  std::exception_ptr failure;  // Exception of any thread.

  void fail() {
    const std::lock_guard lock(failing);
    failure = std::current_exception();
  }

  void work(int thread) {
    uint32_t seen = 0;
    while (true) {
      // Epochs advance one by one, because `start` waits for the previous `finish`.
      await_change(epoch, seen);
      ++seen;
      if (call == nullptr) return;
      try {
        call(context, thread);
      } catch (...) {
        fail();
      }
      done.fetch_add(1, std::memory_order_acq_rel);
      done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads > 0 ? threads : usable_processors()) {
  watch_forks();
  spawn();
  pool_threads.fetch_add(size_, std::memory_order_relaxed);
}

ThreadPool::~ThreadPool() {
  pool_threads.fetch_sub(size_, std::memory_order_relaxed);
  if (fork_generation_ != forks.load()) {
    // The threads exist in the parent process only: nothing can be joined.
    workers_.release();  // NOLINT(bugprone-unused-return-value): leaked on purpose.
    return;
  }
  end_workers();
}

void ThreadPool::end_workers() {
  shared_->call = nullptr;
  shared_->epoch.fetch_add(1, std::memory_order_release);
  shared_->epoch.notify_all();
  for (std::thread& worker : *workers_) worker.join();
  workers_->clear();
}

// If it throws, the next launch after a fork tries again, because the generation is not updated.
void ThreadPool::spawn() {
  const uint32_t generation = forks.load();
  shared_ = std::make_unique<Shared>();
  workers_ = std::make_unique<std::vector<std::thread>>();
  workers_->reserve(static_cast<size_t>(size_));
  Shared* shared = shared_.get();
  try {
    for (int thread = 1; thread < size_; ++thread)
      workers_->push_back(start_thread([shared, thread] { shared->work(thread); }));
  } catch (...) {
    end_workers();
    throw;
  }
  fork_generation_ = generation;
}

void ThreadPool::start(Call call, const void* context) {
  if (fork_generation_ != forks.load(std::memory_order_relaxed)) {
    workers_.release();  // NOLINT(bugprone-unused-return-value): their threads are gone.
    spawn();
  }
  shared_->call = call;
  shared_->context = context;
  shared_->done.store(0, std::memory_order_relaxed);
  shared_->epoch.fetch_add(1, std::memory_order_release);
  shared_->epoch.notify_all();
}

void ThreadPool::finish() {
  const auto workers = static_cast<uint32_t>(size_ - 1);
  for (uint32_t done = shared_->done.load(std::memory_order_acquire); done != workers;) {
    done = await_change(shared_->done, done);
  }
  if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
}

void ThreadPool::fail() { shared_->fail(); }

}  // namespace tessera
