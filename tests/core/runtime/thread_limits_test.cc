// SPDX-License-Identifier: Apache-2.0
// Owners of threads where the system refuses one of them: an Error, and those that were started
// have ended. Each case runs in a forked process whose address space has room for a few stacks
// only.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/cpu/team.h"
#include "core/base/error.h"
#include "core/runtime/device_threads.h"
#include "core/runtime/side_thread.h"
#include "tests/support/catch.h"
#include "tests/support/sanitizers.h"
#include "tests/support/skip.h"

namespace tessera {
namespace {

constexpr int kMany = 500;
constexpr rlim_t kRoomBytes = 64 << 20;  // Of stacks of 8 MiB: seven, at most.

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

// 0: the action threw the Error and left no thread; else what was wrong. Of the child process.
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

int in_child(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(outcome_of(action));
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("an owner of threads that cannot start them all throws, and ends those it started") {
  if (kSanitized) return skip_test("a sanitizer's address space cannot be limited");
  REQUIRE(in_child([] { const ThreadTeam team(kMany); }) == 0);
  REQUIRE(in_child([] { const DeviceThreads threads(kMany, std::chrono::seconds(1)); }) == 0);
  REQUIRE(in_child([] {
            std::vector<std::unique_ptr<SideThread>> threads;
            for (int i = 0; i < kMany; ++i)
              threads.push_back(std::make_unique<SideThread>([](int64_t) {}));
          }) == 0);
}

}  // namespace
}  // namespace tessera
