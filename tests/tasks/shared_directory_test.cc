// SPDX-License-Identifier: Apache-2.0
// Detects hosts that each have a local directory under the run's path instead of a shared one.
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tasks/run_directory/run_directory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

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
                                   "process 0 (host alpha) wrote there; give --job_log_dir on a "
                                   "file system that all hosts have mounted, under the same path "
                                   "on each",
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
