// SPDX-License-Identifier: Apache-2.0
// The lock of a run's directory, and the check that all hosts share it.
#include "tasks/run/directory/run_directory.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("a second writer is rejected with the process id of the first") {
  const TemporaryDirectory directory;
  {
    const RunLock lock(directory.path());
    REQUIRE_THROWS_WITH(RunLock(directory.path()),
                        Contains("is in use by process " + std::to_string(::getpid())) &&
                            Contains("--job_log_dir"));
  }
  REQUIRE_NOTHROW(RunLock(directory.path()));
  REQUIRE_THROWS_WITH(RunLock(directory / "none"), Contains("No such file"));
}

TEST_CASE("taking the lock removes temporary files of a killed writer, and nothing else") {
  const TemporaryDirectory directory;
  const auto left = temporary_beside(directory / "corpus.h5", "new");
  for (const auto& path :
       {left, directory / ".hidden", directory / "a.b.new.12", directory / ".x.12"})
    write_bytes(path, "x");
  const RunLock lock(directory.path());
  REQUIRE_FALSE(std::filesystem::exists(left));
  for (const char* kept : {".hidden", "a.b.new.12", ".x.12", "lock"})
    REQUIRE(std::filesystem::exists(directory / kept));
}

TEST_CASE("a lock that is a link or a FIFO is rejected, and its target is unchanged") {
  const TemporaryDirectory directory, elsewhere;
  write_bytes(elsewhere / "precious", "precious");
  std::filesystem::create_symlink(elsewhere / "precious", directory / "lock");
  REQUIRE_THROWS_WITH(RunLock(directory.path()),
                      Contains("lock is a symbolic link") && Contains("remove it"));
  std::filesystem::remove(directory / "lock");
  std::filesystem::create_hard_link(elsewhere / "precious", directory / "lock");
  REQUIRE_THROWS_WITH(RunLock(directory.path()), Contains("is a hard link to another file"));
  std::filesystem::remove(directory / "lock");
  REQUIRE(::mkfifo((directory / "lock").c_str(), 0666) == 0);
  REQUIRE_THROWS_WITH(RunLock(directory.path()), Contains("is not a regular file"));
  std::filesystem::remove(directory / "lock");
  REQUIRE_NOTHROW(RunLock(directory.path()));  // The suggested fix works.
  REQUIRE(read_bytes(elsewhere / "precious") == "precious");
}

TEST_CASE("the lock of a killed process is released") {
  const TemporaryDirectory directory;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(directory.path());
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  REQUIRE_THROWS_WITH(RunLock(directory.path()), Contains("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE_NOTHROW(RunLock(directory.path()));
  ::close(ready[0]);
  ::close(ready[1]);
}

using Catch::Contains;
namespace fs = std::filesystem;

// The error of each process for the directory that it sees; "" if it succeeds.
std::vector<std::string> verdicts(const std::vector<fs::path>& directories,
                                  std::chrono::milliseconds patience) {
  const auto transports =
      make_loopback(static_cast<int>(directories.size()), {"alpha", "beta", "gamma"});
  std::vector<std::string> verdicts(directories.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < directories.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup processes(transports[rank]);
        try {
          check_shared(directories[rank], processes, patience);
        } catch (const Error& error) {
          verdicts[rank] = error.what();
        }
      });
  }
  return verdicts;
}

TEST_CASE("a directory that all processes see passes the check and is left empty") {
  const TemporaryDirectory directory;
  const auto path = directory.path();
  REQUIRE(verdicts({path, path, path}, std::chrono::seconds(60)) ==
          std::vector<std::string>(3, ""));
  REQUIRE(fs::is_empty(path));
}

TEST_CASE("a host with a local directory is named in the error of every process") {
  const TemporaryDirectory ours;
  const TemporaryDirectory theirs;
  for (const fs::path& other : {theirs.path(), theirs / "none"}) {
    const auto said = verdicts({ours.path(), ours.path(), other}, std::chrono::milliseconds(50));
    REQUIRE(said[0] == said[1]);
    REQUIRE(said[0] == fmt::format("{} is not shared: process 2 (host gamma) does not see what "
                                   "process 0 (host alpha) wrote there; give a --job_log_dir on a "
                                   "file system that all hosts mount under the same path",
                                   ours.path().string()));
    REQUIRE_THAT(said[2], Contains(other.string() + " is not shared: process 2 (host gamma)"));
    REQUIRE(fs::is_empty(ours.path()));
  }
}

TEST_CASE("the check waits for a file system that shows files late") {
  const TemporaryDirectory ours;
  const TemporaryDirectory theirs;
  const fs::path view = theirs / "view";  // Process 1's path, later a link to the shared one.
  std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::create_directory_symlink(ours.path(), view);
  });
  REQUIRE(verdicts({ours.path(), view}, std::chrono::seconds(30)) ==
          std::vector<std::string>(2, ""));
}

TEST_CASE("if process 0 cannot write the directory, all processes fail") {
  const TemporaryDirectory directory;
  const auto said = verdicts({directory / "none", directory / "none"}, std::chrono::seconds(1));
  REQUIRE(said[0] == said[1]);
  REQUIRE_THAT(said[0], Contains("process 0 (host alpha)") && Contains("none"));
}

}  // namespace

}  // namespace tessera
