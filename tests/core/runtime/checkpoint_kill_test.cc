// SPDX-License-Identifier: Apache-2.0
// One of several processes is killed while they save: earlier checkpoints load, the other processes
// exit with an error, and a restart continues.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "tests/core/runtime/sharded_case.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kProcesses = 3;
constexpr int kGaveUp = 3;

Mesh mesh() { return Mesh::standard({1, 3, 2}); }

// The processes of a run that saves forever and keeps two checkpoints.
std::vector<pid_t> save_for_ever(const fs::path& directory, int64_t first) {
  return fork_processes(kProcesses, [&](std::shared_ptr<Transport> transport) {
    const int rank = transport->rank();
    CheckpointSaver saver(CheckpointStore(directory), {.newest = 2},
                          std::make_unique<ProcessGroup>(transport, std::chrono::seconds(20), 1));
    try {
      for (int64_t step = first;; ++step) {
        const ShardedProcess held(mesh(), rank, kProcesses, step);
        saver.save(held.info, held.pieces);
        saver.reads()->await_all();
      }
    } catch (const Error&) {
      return kGaveUp;
    }
  });
}

void check_kills(int kills) {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  std::mt19937_64 random(5);
  int64_t newest = 0;
  int leftovers = 0;
  for (int i = 0; i < kills; ++i) {
    const std::vector<pid_t> children = save_for_ever(directory.path(), newest + 1);
    const auto begin = Clock::now();
    // Each run continues until its first save, then for a random time.
    while (store.newest().value_or(0) == newest) ::usleep(500);
    const double save_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    ::usleep(static_cast<useconds_t>(std::uniform_real_distribution<>(0.0, 2.0 * save_us)(random)));
    const auto victim = random() % children.size();
    ::kill(children[victim], SIGKILL);
    for (size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      ::waitpid(children[rank], &status, 0);
      CAPTURE(i, rank, victim);
      if (rank != victim) REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == kGaveUp));
    }
    REQUIRE(store.newest().value_or(0) > newest);
    newest = *store.newest();
    for (const int64_t step : store.steps()) REQUIRE(loads_on(store.open(step), mesh()));
    for (const auto& entry : fs::directory_iterator(directory.path()))
      leftovers += entry.path().filename().string().starts_with(".");
  }
  if (kills > 20) REQUIRE(leftovers > 0);  // Process 0 was sometimes killed while saving.
  remove_temporaries(directory.path());
  for (const auto& entry : fs::directory_iterator(directory.path()))
    REQUIRE(entry.path().filename().string().starts_with("step_"));
}

TEST_CASE("a process killed while several save leaves checkpoints that load") { check_kills(5); }
TEST_CASE("a process killed at any of many moments while several save leaves checkpoints that load",
          "[full]") {
  check_kills(150);
}

}  // namespace
}  // namespace tessera
