// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/thread_pool.h"

#include <pthread.h>
#include <sys/resource.h>

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

using Clock = std::chrono::steady_clock;

// Workers spin this long before they sleep: longer than the gaps between the launches of a step,
// but an idle pool does not keep processors busy.
constexpr auto kSpin = std::chrono::microseconds(60);

std::atomic<uint32_t> forks{0};

// Number of threads in all pools of this process, callers included.
std::atomic<int> pool_threads{0};

// Threads of a pool that run: more than there are processors would only wait for each other.
int awake_threads(int size) { return std::min(size, usable_processors()); }

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
    const auto deadline = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        const uint32_t now = word.load(std::memory_order_acquire);
        if (now != old) return now;
        pause_briefly();
      }
    } while (Clock::now() < deadline);
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

// The time for which a worker computes before it lets other programs have its processor. If the
// system took the processor away within a piece, all threads would wait for that piece, so a worker
// that was interrupted twice lately sleeps for a moment between two pieces. (A yield would give up
// its fair share for the rest of its time slice.)
class Turn {
 public:
  Clock::time_point end() const { return end_; }

  void change() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    const Clock::time_point now = Clock::now();
    if (usage.ru_nivcsw != interruptions_) {
      is_disturbed_ = now - interrupted_ < kOften;
      interrupted_ = now;
    }
    interruptions_ = usage.ru_nivcsw;
    if (is_disturbed_ && now - interrupted_ < kLately)
      std::this_thread::sleep_for(std::chrono::nanoseconds(1));
    end_ = Clock::now() + kTurn;
  }

 private:
  static constexpr auto kTurn = std::chrono::microseconds(500);
  // Another program on the processor interrupts every few milliseconds, the system less often.
  static constexpr auto kOften = std::chrono::milliseconds(10);
  static constexpr auto kLately = std::chrono::milliseconds(40);
  Clock::time_point end_ = Clock::now() + kTurn, interrupted_;
  int64_t interruptions_ = 0;
  bool is_disturbed_ = false;
};

}  // namespace

Range part_of(int64_t count, int thread, int threads, int64_t grain) {
  const int64_t grains = (count + grain - 1) / grain;
  const auto edge = [&](int64_t t) { return std::min(count, grains * t / threads * grain); };
  return {edge(thread), edge(thread + 1)};
}

struct ThreadPool::Shared {
  // The pieces that a thread begins with, of which others take what it has not claimed.
  struct alignas(64) Pieces {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  // `entrance` is the number of workers in the loop, and kOpen while more may enter.
  static constexpr uint32_t kOpen = uint32_t{1} << 31;

  explicit Shared(int size) : pieces(static_cast<size_t>(size)) {}

  alignas(64) std::atomic<uint32_t> epoch{0};  // Advanced to start a loop.
  alignas(64) std::atomic<uint32_t> entrance{0};
  alignas(64) Loop loop;  // Changed only while the entrance is closed and no worker is inside.
  std::vector<Pieces> pieces;
  std::mutex failing;
  std::exception_ptr failure;  // Exception of any thread.

  void open(const Loop& next) {
    loop = next;
    const auto size = static_cast<int>(pieces.size());
    for (int thread = 0; thread < size; ++thread) {
      const Range own = part_of(loop.pieces, thread, size);
      pieces[static_cast<size_t>(thread)].end = own.end;
      pieces[static_cast<size_t>(thread)].next.store(own.begin, std::memory_order_relaxed);
    }
    entrance.store(kOpen, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  // A worker that arrives late finds the entrance closed: the loop does not wait for it.
  bool enter() {
    uint32_t inside = entrance.load(std::memory_order_relaxed);
    while ((inside & kOpen) != 0)
      if (entrance.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel))
        return true;
    return false;
  }

  void leave() {
    if (entrance.fetch_sub(1, std::memory_order_acq_rel) == 1) entrance.notify_one();
  }

  void close() {
    entrance.fetch_and(~kOpen, std::memory_order_acq_rel);
    uint32_t inside = entrance.load(std::memory_order_acquire);
    while (inside != 0) inside = await_change(entrance, inside);
  }

  // Computes pieces until all are claimed, this thread's own first, or until a time.
  void work(int thread, Clock::time_point end) {
    const auto size = static_cast<int>(pieces.size());
    for (int other = 0; other < size; ++other) {
      Pieces& of = pieces[static_cast<size_t>((thread + other) % size)];
      while (of.next.load(std::memory_order_relaxed) < of.end && Clock::now() < end) {
        const int64_t piece = of.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= of.end) break;
        call(
            part_of(loop.count, static_cast<int>(piece), static_cast<int>(loop.pieces), loop.grain),
            thread);
      }
    }
  }

  void call(Range range, int thread) {
    if (range.size() == 0) return;
    try {
      loop.call(loop.context, range, thread);
    } catch (...) {
      const std::lock_guard lock(failing);
      failure = std::current_exception();
    }
  }

  void serve(int thread) {
    uint32_t seen = 0;
    Turn turn;
    while (true) {
      seen = await_change(epoch, seen);
      while (enter()) {
        const bool ends = loop.call == nullptr;
        if (!ends) work(thread, turn.end());
        leave();
        if (ends) return;
        if (Clock::now() < turn.end()) break;  // All pieces are claimed.
        turn.change();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads > 0 ? threads : usable_processors()) {
  watch_forks();
  spawn();
  pool_threads.fetch_add(awake_threads(size_), std::memory_order_relaxed);
}

ThreadPool::~ThreadPool() {
  pool_threads.fetch_sub(awake_threads(size_), std::memory_order_relaxed);
  if (fork_generation_ != forks.load()) {
    // The threads exist in the parent process only: nothing can be joined.
    workers_.release();  // NOLINT(bugprone-unused-return-value): leaked on purpose.
    return;
  }
  end_workers();
}

void ThreadPool::end_workers() {
  shared_->open({});
  for (std::thread& worker : *workers_) worker.join();
  workers_->clear();
}

// If it throws, the next launch after a fork tries again, because the generation is not updated.
void ThreadPool::spawn() {
  const uint32_t generation = forks.load();
  shared_ = std::make_unique<Shared>(size_);
  workers_ = std::make_unique<std::vector<std::thread>>();
  workers_->reserve(static_cast<size_t>(size_));
  Shared* shared = shared_.get();
  try {
    for (int thread = 1; thread < awake_threads(size_); ++thread)
      workers_->push_back(start_thread([shared, thread] { shared->serve(thread); }));
  } catch (...) {
    end_workers();
    throw;
  }
  fork_generation_ = generation;
}

void ThreadPool::launch(const Loop& loop) {
  if (fork_generation_ != forks.load(std::memory_order_relaxed)) {
    workers_.release();  // NOLINT(bugprone-unused-return-value): their threads are gone.
    spawn();
  }
  shared_->open(loop);
  shared_->work(0, Clock::time_point::max());
  shared_->close();
  if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
}

}  // namespace tessera
