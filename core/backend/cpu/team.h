// SPDX-License-Identifier: Apache-2.0
// A persistent team of threads that runs one piece of work at a time, each thread a fixed part of
// it, so that results do not depend on timing. Starting work allocates nothing. It is no task
// queue: nothing is stolen, and work does not nest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace tessera {

int usable_processors();  // By this process.

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The part of [0, count) that is thread `thread`'s: contiguous, all but the last a multiple of
// `grain`, sizes as equal as that allows.
Range part_of(int64_t count, int thread, int threads, int64_t grain = 1);

// Processors that this process may use.
int usable_processors();

class ThreadTeam {
 public:
  // `threads` includes the caller of `run`; <= 0: every processor this process may use. Error if
  // the system refuses so many.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // work(thread) on every thread, the caller being thread 0; returns when all have. Nothing may be
  // thrown. After a fork, the child's first call starts new threads.
  template <typename Work>
  void run(const Work& work) {
    if (size_ == 1) return work(0);
    start([](const void* context, int thread) { (*static_cast<const Work*>(context))(thread); },
          &work);
    work(0);
    finish();
  }

  // work(range, thread) on each thread's part of [0, count). Work of less than two grains stays on
  // the caller.
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
  struct Shared;  // What workers see; survives the team in a forked child.

  void start(Call call, const void* context);
  void finish();
  void spawn();
  void end_workers();

  int size_;
  uint32_t fork_generation_ = 0;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<std::vector<std::thread>> workers_;
};

}  // namespace tessera
