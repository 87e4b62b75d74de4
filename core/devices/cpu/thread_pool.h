// SPDX-License-Identifier: Apache-2.0
// A thread pool for fork-join loops (an OpenMP team with a dynamic schedule). A loop is divided
// into pieces of fixed bounds, so that results do not depend on which thread computes a piece. Each
// thread begins with its own contiguous pieces and then takes those that are left of others, so
// that another program on one processor does not delay all. Launching allocates nothing, and
// launches do not nest.
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
  // `threads` includes the caller; <= 0: usable_processors() (core/base/process.h). No more threads
  // than that are started. Error if the system cannot create them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool& operator=(ThreadPool&&) = delete;  // Neither copied nor moved.

  int size() const { return size_; }

  // Calls work(range, thread) for pieces that cover [0, count), and returns when all are done.
  // Pieces are multiples of `grain`, except the last. `thread` < size() is that of the calling
  // thread, whose scratch the call may use. Work of less than two grains runs on the caller. Throws
  // what a piece throws (out of memory). After a fork, the first call in the child starts new
  // threads.
  template <typename Work>
  void parallel(int64_t count, int64_t grain, const Work& work) {
    if (count <= 0) return;
    const int64_t grains = (count + grain - 1) / grain;
    if (size_ == 1 || grains < 2) return work(Range{0, count}, 0);
    launch({.call = [](const void* context, Range range,
                       int thread) { (*static_cast<const Work*>(context))(range, thread); },
            .context = &work,
            .count = count,
            .grain = grain,
            .pieces = std::min<int64_t>(grains, size_ * kPiecesOfThread)});
  }

  // Calls work(part) for each part < size(), at the same time if there are as many processors.
  template <typename Work>
  void run(const Work& work) {
    parallel(size_, 1, [&](Range parts, int) {
      for (int64_t part = parts.begin; part < parts.end; ++part) work(static_cast<int>(part));
    });
  }

 private:
  // Enough that what one thread leaves can be shared, few enough that each is worth a claim.
  static constexpr int64_t kPiecesOfThread = 4;

  struct Loop {
    void (*call)(const void* context, Range range, int thread) = nullptr;  // Null: exit.
    const void* context = nullptr;
    int64_t count = 0, grain = 1, pieces = 0;
  };
  struct Shared;  // Seen by the workers; outlives the pool in a forked child.

  void launch(const Loop& loop);
  void spawn();
  void end_workers();

  int size_;
  uint32_t fork_generation_ = 0;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<std::vector<std::thread>> workers_;
};

}  // namespace tessera
