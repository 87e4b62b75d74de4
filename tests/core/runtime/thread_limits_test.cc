// SPDX-License-Identifier: Apache-2.0
// If the system cannot create a thread, its owner throws an Error and ends the threads that it
// started. Each case runs in a forked process whose address space has room for only a few stacks.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/cpu/thread_pool.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "core/runtime/executor/device_threads.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/support/catch.h"
#include "tests/support/compiler.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr int kMany = 500;
constexpr rlim_t kRoomBytes = 64 << 20;  // At most seven stacks of 8 MiB.

int64_t number_in_status(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  return -1;
}

void leave_room_for_few_threads() {
  const auto bytes = static_cast<rlim_t>(number_in_status("VmSize:")) * 1024 + kRoomBytes;
  const rlimit limit{bytes, bytes};
  CHECK(::setrlimit(RLIMIT_AS, &limit) == 0);
}

// Runs in the child process: 0 if the action threw the Error and left no thread.
int outcome_of(const std::function<void()>& action) {
  const int64_t before = number_in_status("Threads:");
  leave_room_for_few_threads();
  try {
    action();
    return 1;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.find("refuses to start another thread") == std::string::npos) return 2;
    if (message.find("--threads=N or --devices=N") == std::string::npos) return 3;
  }
  return number_in_status("Threads:") == before ? 0 : 4;
}

// The result of the action in a forked process, with a timeout of a minute; negative for a signal.
int code_of_child(const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(action());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int in_child(const std::function<void()>& action) {
  return code_of_child([&] { return outcome_of(action); });
}

// Starts as many threads as possible, so that no other can start.
std::vector<std::unique_ptr<Stream>> exhaust_threads() {
  leave_room_for_few_threads();
  std::vector<std::unique_ptr<Stream>> threads;
  try {
    for (int i = 0; i < kMany; ++i) threads.push_back(make_thread_stream());
  } catch (const Error&) {
    return threads;
  }
  fail("{} threads were started", kMany);
}

bool refuses(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST_CASE("an owner that cannot start all of its threads throws and ends those it started") {
  if (kSanitized) return skip_test("a sanitizer's address space cannot be limited");
  if (usable_processors() > 1)  // A team starts no more threads than there are processors.
    REQUIRE(in_child([] {
              std::vector<std::unique_ptr<ThreadPool>> teams;
              for (int i = 0; i < kMany; ++i) teams.push_back(std::make_unique<ThreadPool>(3));
            }) == 0);
  REQUIRE(in_child([] { const DeviceThreads threads(kMany, std::chrono::seconds(1)); }) == 0);
  REQUIRE(in_child([] {
            std::vector<std::unique_ptr<Stream>> threads;
            for (int i = 0; i < kMany; ++i) threads.push_back(make_thread_stream());
          }) == 0);
}

TEST_CASE("a team that cannot start its threads in a forked child can do so later") {
  if (kSanitized || usable_processors() < 2) return;
  ThreadPool team(3);
  std::atomic<int> calls = 0;
  const auto work = [&](int) { ++calls; };
  team.run(work);
  REQUIRE(code_of_child([&] {
            auto others = exhaust_threads();
            if (!refuses([&] { team.run(work); })) return 1;
            if (!refuses([&] { team.run(work); })) return 2;
            others.clear();
            calls = 0;
            team.run(work);
            return calls == 3 ? 0 : 3;
          }) == 0);
}

TEST_CASE("a save whose thread cannot be started leaves no reads pending") {
  if (kSanitized) return;
  const TemporaryDirectory directory;
  const CheckpointCase saved(1);
  REQUIRE(code_of_child([&] {
            CheckpointSaver saver(CheckpointStore(directory / "checkpoints"), {});
            auto others = exhaust_threads();
            if (!refuses([&] { saver.save(saved.info, saved.arrays); })) return 1;
            saver.reads()->await_all();
            others.clear();
            saver.save(saved.info, saved.arrays);
            saver.wait();
            return 0;
          }) == 0);
}

}  // namespace
}  // namespace tessera
