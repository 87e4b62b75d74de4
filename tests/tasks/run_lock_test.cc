// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tasks/run_directory/run_directory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("a second writer is rejected with the process id of the first") {
  const TemporaryDirectory directory;
  {
    const RunLock lock(directory.path());
    REQUIRE_THROWS_WITH(RunLock(directory.path()),
                        Contains("is being written by process " + std::to_string(::getpid())) &&
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

}  // namespace
}  // namespace tessera
