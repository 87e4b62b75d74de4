// SPDX-License-Identifier: Apache-2.0
#include "core/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/terminal.h"
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
  REQUIRE((killed.signal() == SIGKILL && status.signal() == 0));
}

TEST_CASE("A child process writes to the descriptor that it is given, and can be asked to stop") {
  const TemporaryDirectory folder;
  const int file = ::open((folder / "output").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ChildProcess child(
      {"sh", "-c", "trap 'echo stopping >&2; exit 5' TERM; echo out; while :; do sleep 0.05; done"},
      file);
  ::close(file);
  for (const Clock::time_point limit = Clock::now() + seconds(60);
       read_bytes(folder / "output") != "out\n" && Clock::now() < limit;)
    REQUIRE_FALSE(child.wait(Clock::now() + std::chrono::milliseconds(5)).has_value());
  child.ask_to_stop();
  REQUIRE(child.wait(Clock::now() + seconds(60)) == 5);
  REQUIRE(read_bytes(folder / "output") == "out\nstopping\n");
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

// Runs `work` in a process. Returns its exit code and its standard error.
std::pair<int, std::string> in_child(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text, block(4096, '\0');
  for (ssize_t got; (got = ::read(ends[0], block.data(), block.size())) > 0;)
    text.append(block, 0, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

TEST_CASE("An exception that leaves a thread is reported, and ends the program with 1") {
  REQUIRE(in_child([] { start_thread([] { throw std::bad_alloc(); }).join(); }) ==
          std::pair<int, std::string>(1, "a thread of this program is out of memory\n"));
  REQUIRE(in_child([] { start_thread([] { fail("no \x1b[31m luck"); }).join(); }) ==
          std::pair<int, std::string>(1, "a thread of this program failed: no \\x1b[31m luck\n"));
}

TEST_CASE("A program raises its limit on open files, and escapes what it prints") {
  const auto [code, text] = in_child([] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 20;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    prepare_program();
    ::getrlimit(RLIMIT_NOFILE, &limit);
    std::cerr << "a\x1b[2Jb" << (limit.rlim_cur > 20 ? " raised" : " not raised") << std::flush;
    clear_line(std::cerr);
  });
  REQUIRE(code == 0);
  REQUIRE(text == "a\\x1b[2Jb raised\r\x1b[K");
}

TEST_CASE("A program takes no other program from relative or empty entries of PATH") {
  const auto path_of = [](const char* path) {
    return in_child([path] {
      ::setenv("PATH", path, 1);
      prepare_program();
      const char* const kept = std::getenv("PATH");
      std::cerr << (kept == nullptr ? "unset" : kept) << std::flush;
    });
  };
  REQUIRE(path_of(":/bin:.:bin:/usr/bin:").second == "/bin:/usr/bin");
  REQUIRE(path_of("/opt/a b:/bin").second == "/opt/a b:/bin");
  REQUIRE(path_of(":.").second == "unset");
  const TemporaryDirectory folder;
  const auto tool = folder / "tool";
  std::ofstream(tool) << "#!/bin/sh\n";
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const auto finds_tool = [&](const std::string& path) {
    return in_child([&] {
             std::filesystem::current_path(folder.path());
             ::setenv("PATH", path.c_str(), 1);
             ::_exit(program_exists("tool") ? 1 : 0);
           }).first == 1;
  };
  REQUIRE(finds_tool(folder.path().string()));
  REQUIRE_FALSE(finds_tool("."));
  REQUIRE_FALSE(finds_tool(":/bin:"));
}

}  // namespace
}  // namespace tessera
