// SPDX-License-Identifier: Apache-2.0
// A thread pool for fork-join loops (an OpenMP team): each launch gives every thread a fixed part
// of the work, so that results do not depend on timing. Launching allocates nothing. Not a task
// queue: there is no work stealing, and launches do not nest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace tessera {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool contains(int64_t i) const { return begin <= i && i < end; }
  bool operator==(const Range&) const = default;
};

// Returns the contiguous part of [0, count) of thread `thread`. Parts are multiples of `grain`,
// except the last, and as equal as that allows.
Range part_of(int64_t count, int thread, int threads, int64_t grain = 1);

class ThreadPool {
 public:
  // `threads` includes the caller of `run`; <= 0: usable_processors() (core/base/process.h). Error
  // if the system cannot create them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool& operator=(ThreadPool&&) = delete;  // Neither copied nor moved.

  int size() const { return size_; }

  // Calls work(thread) on every thread, the caller being thread 0, and returns when all are done.
  // Throws what one of them throws (out of memory). After a fork, the first call in the child
  // starts new threads.
  template <typename Work>
  void run(const Work& work) {
    if (size_ == 1) return work(0);
    start([](const void* context, int thread) { (*static_cast<const Work*>(context))(thread); },
          &work);
    try {
      work(0);
    } catch (...) {
      fail();
    }
    finish();
  }

  // Calls work(range, thread) with the part of [0, count) of each thread. Work of less than two
  // grains runs on the caller.
  template <typename Work>
  void parallel(int64_t count, int64_t grain, const Work& work) {
    if (count <= 0) return;
    const int threads = static_cast<int>(std::min<int64_t>(size_, (count + grain - 1) / grain));
    if (threads <= 1) return work(Range{0, count}, 0);
    run([&](int thread) {
      if (thread >= threads) return;
      const Range range = part_of(count, thread, threads, grain);
      if (range.size() > 0) work(range, thread);
    });
  }

 private:
  using Call = void (*)(const void* context, int thread);
  struct Shared;  // Seen by the workers; outlives the pool in a forked child.

  void start(Call call, const void* context);
  void fail();  // Keeps the current exception for finish().
  void finish();
  void spawn();
  void end_workers();

  int size_;
  uint32_t fork_generation_ = 0;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<std::vector<std::thread>> workers_;
};

}  // namespace tessera
