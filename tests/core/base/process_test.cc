// SPDX-License-Identifier: Apache-2.0
#include "core/base/process.h"

#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

TEST_CASE("A child process reports its exit status, and -1 if a signal ended it") {
  ChildProcess status({"sh", "-c", "exit 3"});
  REQUIRE(status.wait(Clock::now() + seconds(60)) == 3);
  REQUIRE(status.wait(Clock::now()) == 3);
  ChildProcess killed({"sh", "-c", "kill -9 $$"});
  REQUIRE(killed.wait(Clock::now() + seconds(60)) == -1);
}

TEST_CASE("A child process that outlives its deadline is killed with its own children") {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "pids").string();
  std::vector<pid_t> pids;
  {
    ChildProcess child({"sh", "-c",
                        "sleep 300 & echo $! $$ > \"$1\".part; mv \"$1\".part \"$1\"; wait", "sh",
                        file});
    const Clock::time_point limit = Clock::now() + seconds(60);
    while (pids.empty() && Clock::now() < limit) {
      REQUIRE_FALSE(child.wait(Clock::now() + std::chrono::milliseconds(20)).has_value());
      std::ifstream lines(file);
      for (pid_t pid = 0; lines >> pid;) pids.push_back(pid);
    }
    REQUIRE(pids.size() == 2);
    REQUIRE(::kill(pids[1], 0) == 0);
  }
  REQUIRE(::kill(pids[1], 0) != 0);
  // Another process reaps the grandchild; until then it is a zombie.
  std::string state;
  for (const Clock::time_point limit = Clock::now() + seconds(60); Clock::now() < limit;) {
    std::ifstream status("/proc/" + std::to_string(pids[0]) + "/stat");
    std::string id, name;
    if (!(status >> id >> name >> state)) state = "gone";
    if (state == "gone" || state == "Z" || state == "X") break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE((state == "gone" || state == "Z" || state == "X"));
}

TEST_CASE("A program that PATH lacks is an error") {
  REQUIRE(program_exists("sh"));
  REQUIRE_FALSE(program_exists("no-such-program"));
  REQUIRE_FALSE(program_exists(""));
  REQUIRE_THAT(error_of([] { ChildProcess child({"no-such-program"}); }),
               Catch::Contains("cannot start the program no-such-program: No such file"));
}

}  // namespace
}  // namespace tessera
