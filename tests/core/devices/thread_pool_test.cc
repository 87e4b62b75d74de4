// SPDX-License-Identifier: Apache-2.0
// The thread pool: fixed pieces, each computed once by some thread, many short launches, forks.
#include "core/devices/cpu/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/process.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("parts cover the range in order, in whole grains") {
  for (const int64_t count : {0, 1, 7, 64, 1000, 1023}) {
    for (const int threads : {1, 2, 3, 8}) {
      for (const int64_t grain : {1, 16, 100}) {
        int64_t end = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const Range part = part_of(count, thread, threads, grain);
          REQUIRE(part.begin == end);
          REQUIRE(part.end >= part.begin);
          if (part.end != count) REQUIRE(part.end % grain == 0);
          end = part.end;
        }
        REQUIRE(end == count);
      }
    }
  }
}

TEST_CASE("the partition is as even as its grain allows") {
  for (int thread = 0; thread < 4; ++thread) REQUIRE(part_of(1000, thread, 4, 10).size() == 250);
}

TEST_CASE("every part runs once per launch, over many launches") {
  ThreadPool pool(4);
  REQUIRE(pool.size() == 4);
  std::vector<int64_t> calls(4 * 16, 0);  // A cache line apart: a plain counter per thread.
  for (int launch = 0; launch < 20000; ++launch) {
    pool.run([&](int part) { ++calls[static_cast<size_t>(part) * 16]; });
  }
  for (size_t thread = 0; thread < 4; ++thread) REQUIRE(calls[thread * 16] == 20000);
}

TEST_CASE("concurrent pools with more threads than processors do their own work") {
  constexpr int kTeams = 4, kLaunches = 500;
  const int threads = usable_processors() + 1;
  std::vector<std::vector<int64_t>> sums(kTeams);
  std::vector<std::thread> callers;
  for (int t = 0; t < kTeams; ++t) {
    callers.emplace_back([&, t] {
      ThreadPool pool(threads);
      std::vector<int64_t> own(static_cast<size_t>(threads), 0);
      for (int launch = 0; launch < kLaunches; ++launch)
        pool.run([&](int thread) { own[static_cast<size_t>(thread)] += launch + t; });
      sums[static_cast<size_t>(t)] = own;
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int t = 0; t < kTeams; ++t) {
    const int64_t expected = kLaunches * (kLaunches - 1) / 2 + kLaunches * t;
    REQUIRE(sums[static_cast<size_t>(t)] ==
            std::vector<int64_t>(static_cast<size_t>(threads), expected));
  }
}

TEST_CASE("a sleeping pool wakes up") {
  ThreadPool pool(3);
  for (int launch = 0; launch < 5; ++launch) {
    std::atomic<int> calls{0};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run([&](int) { ++calls; });
    REQUIRE(calls == 3);
  }
}

TEST_CASE("parallel covers each element once and leaves small work to the caller") {
  ThreadPool pool(3);
  std::vector<int> seen(1000, 0);
  pool.parallel(1000, 8, [&](Range range, int) {
    for (int64_t i = range.begin; i < range.end; ++i) ++seen[static_cast<size_t>(i)];
  });
  REQUIRE(std::accumulate(seen.begin(), seen.end(), 0) == 1000);
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel(5, 8, [&](Range range, int thread) {
    REQUIRE(std::this_thread::get_id() == caller);
    REQUIRE(range == Range{0, 5});
    REQUIRE(thread == 0);
  });
  pool.parallel(0, 8, [&](Range, int) { FAIL("without work there is no call"); });
}

TEST_CASE("pieces have fixed bounds, and a thread that is held up delays only its own") {
  ThreadPool pool(2);
  for (int launch = 0; launch < 20; ++launch) {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> pieces;
    bool was_held = false;
    const auto begin = std::chrono::steady_clock::now();
    const auto done = [&] {
      const std::lock_guard lock(mutex);
      return pieces.size();
    };
    pool.parallel(800, 10, [&](Range range, int thread) {
      // The worker holds its first piece until all others are done.
      while (thread == 1 && !was_held && done() < 7)
        if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) break;
      if (thread == 1) was_held = true;
      const std::lock_guard lock(mutex);
      pieces.emplace_back(range.begin, range.end);
    });
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    std::ranges::sort(pieces);
    REQUIRE(pieces.size() == 8);
    for (int64_t i = 0; i < 8; ++i)
      REQUIRE(pieces[static_cast<size_t>(i)] == std::pair{i * 100, i * 100 + 100});
  }
}

TEST_CASE("a pool works in a forked child") {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    calls = 0;
    for (int launch = 0; launch < 100; ++launch) pool.run([&](int) { ++calls; });
    _exit(calls == 300 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

TEST_CASE("what a thread of a pool throws, the caller throws when all are done") {
  ThreadPool pool(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    std::atomic<int> done = 0;
    const auto work = [&](int thread) {
      if (thread == thrower) throw std::bad_alloc();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++done;
    };
    REQUIRE_THROWS_AS(pool.run(work), std::bad_alloc);
    REQUIRE(done == 2);
  }
  std::atomic<int> done = 0;
  pool.run([&](int) { ++done; });
  REQUIRE(done == 3);
}

}  // namespace
}  // namespace tessera
