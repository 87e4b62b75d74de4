// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: they appear complete, survive kills and full disks, and are removed by
// a policy.
#include "core/runtime/checkpoint/checkpoint_store.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "tests/core/runtime/checkpoint_cases.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Steps = std::vector<int64_t>;
namespace fs = std::filesystem;

void add(const CheckpointStore& store, int64_t step, int64_t rows = 300) {
  const CheckpointCase saved(step, rows);
  ProcessGroup alone;
  store.add(saved.info, saved.arrays, alone);
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("checkpoints are listed by step, and other names are ignored") {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory / "checkpoints");
  REQUIRE(store.steps().empty());
  REQUIRE_FALSE(store.newest());
  add(store, 200);
  add(store, 30);
  fs::create_directories(directory / "checkpoints/step_12");
  fs::create_directories(directory / "checkpoints/step_00000000x1");
  write_bytes(directory / "checkpoints/step_0000000999", "a file");
  REQUIRE(store.steps() == Steps{30, 200});
  REQUIRE(store.newest() == 200);
  REQUIRE(store.path_of(30).filename() == "step_0000000030");
  REQUIRE(holds(store.open(30), CheckpointCase(30)));
  REQUIRE_THROWS_WITH(store.open(31), Contains("no checkpoint of step 31") && Contains("30, 200"));
}

TEST_CASE("a file in place of the directory of checkpoints is reported") {
  const TemporaryDirectory directory;
  write_bytes(directory / "checkpoints", "a file");
  try {
    add(CheckpointStore(directory / "checkpoints"), 10);
    FAIL("it was saved");
  } catch (const Error& error) {
    REQUIRE_THAT(error.what(), Contains("cannot save the checkpoint of step 10: ") &&
                                   Contains((directory / "checkpoints").string()) &&
                                   Contains("a file exists where a directory is expected") &&
                                   !Contains("filesystem error"));
  }
}

TEST_CASE("a checkpoint of the same step is replaced") {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  add(store, 5, 10);
  add(store, 5, 20);
  REQUIRE(holds(store.open(5), CheckpointCase(5, 20)));
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"step_0000000005"});
}

TEST_CASE("a damaged checkpoint is an error that names a remedy, and is never skipped") {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  add(store, 10);
  add(store, 20);
  fs::resize_file(store.path_of(20) / "host_00000.h5", 1000);
  REQUIRE_THROWS_WITH(store.open(20), Contains("step 20 is damaged") && Contains("1000 bytes") &&
                                          Contains("to resume from step 10, remove") &&
                                          Contains("step_0000000020"));
  fs::resize_file(store.path_of(10) / "host_00000.h5", 1000);
  REQUIRE_THROWS_WITH(store.open(10), Contains("to start from step 0, remove"));
}

TEST_CASE("the retention policy keeps the newest, the multiples and the best") {
  const Steps steps = {100, 200, 300, 400, 500, 600};
  const auto removed = [&](const RetentionPolicy& policy,
                           const std::map<int64_t, double>& metrics = {}) {
    return steps_to_remove(steps, policy, metrics);
  };
  REQUIRE(removed({.newest = 0}).empty());
  REQUIRE(removed({.newest = 2}) == Steps{100, 200, 300, 400});
  REQUIRE(removed({.newest = 9}).empty());
  REQUIRE(removed({.newest = 1, .every_steps = 300}) == Steps{100, 200, 400, 500});
  const std::map<int64_t, double> metrics = {{100, 3.0}, {200, 1.5}, {250, 0.1},
                                             {300, NAN}, {400, 1.5}, {500, 2.0}};
  REQUIRE(removed({.newest = 1, .best = true}, metrics) == Steps{100, 300, 400, 500});
  REQUIRE(removed({.newest = 1, .best = false}, metrics) == Steps{100, 200, 300, 400, 500});
  REQUIRE(removed({.newest = 1, .every_steps = 400, .best = true}, metrics) ==
          Steps{100, 300, 500});
}

TEST_CASE("a saver writes in the background, and the arrays are kept until they are read") {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  CheckpointSaver saver(store, {.newest = 2});
  for (int64_t step : {1, 2, 3, 4}) {
    CheckpointCase saved(step);
    saver.save(saved.info, saved.arrays);
    saver.set_metric(step, 1.0);
    saver.reads()->await_all();
  }  // Destroys the arrays.
  saver.wait();
  REQUIRE(store.steps() == Steps{3, 4});
  REQUIRE(holds(store.open(3), CheckpointCase(3)));
  REQUIRE(holds(store.open(4), CheckpointCase(4)));
  const auto reports = saver.take_saved();
  REQUIRE(reports.size() == 4);
  REQUIRE(reports[3].step == 4);
  REQUIRE(reports[3].removed == Steps{2});
  REQUIRE(reports[3].bytes > 300 * 64 * 4);
  REQUIRE(saver.take_saved().empty());
}

TEST_CASE("a saver keeps the checkpoint with the best metric") {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  CheckpointSaver saver(store, {.newest = 1, .best = true});
  for (int64_t step : {1, 2, 3, 4}) {
    saver.set_metric(step, step == 2 ? 0.5 : 1.0);
    const CheckpointCase saved(step);
    saver.save(saved.info, saved.arrays);
    saver.reads()->await_all();
  }
  saver.wait();
  REQUIRE(store.steps() == Steps{2, 4});
}

TEST_CASE("a failed save is reported once, and leaves no files") {
  const TemporaryDirectory directory;
  write_bytes(directory / "checkpoints", "a file where the folder should be");
  const CheckpointStore store(directory / "checkpoints");
  REQUIRE_THROWS_WITH(store.steps(), Contains("cannot list"));
  CheckpointSaver saver(CheckpointStore(directory / "none"), {});
  fs::create_directories(directory / "none");
  fs::create_directories(directory / "none/step_0000000001");
  write_bytes(directory / "none/step_0000000001/keep", "x");
  const CheckpointCase saved(1);
  saver.save(saved.info, saved.arrays);
  REQUIRE_NOTHROW(saver.wait());  // The file is replaced, like any file with a checkpoint's name.
}

// Mounts a small file system; false without permission.
class SmallDisk {
 public:
  SmallDisk(const fs::path& path, const std::string& size) : path_(path) {
    fs::create_directories(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_ = false;
};

TEST_CASE("a full disk is reported, and leaves the earlier checkpoints intact") {
  const TemporaryDirectory directory;
  const SmallDisk disk(directory / "disk", "8m");
  if (!disk.mounted()) {
    WARN("skipped: may not mount a small tmpfs: " << std::strerror(errno));
    return;
  }
  const CheckpointStore store(directory / "disk/checkpoints");
  CheckpointSaver saver(store, {.newest = 0});
  // With large arrays the disk becomes full in the middle of a chunk, with small ones at file
  // close.
  const int64_t rows = GENERATE(2000, 8000, 200000);
  int64_t step = 1;
  std::string failure;
  for (; step < 100 && failure.empty(); ++step) {
    const CheckpointCase saved(step, rows);
    saver.save(saved.info, saved.arrays);
    try {
      saver.wait();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  REQUIRE_THAT(failure, Contains("No space left on device"));
  const Steps steps = store.steps();
  REQUIRE(static_cast<int64_t>(steps.size()) == step - 2);
  for (int64_t kept : steps) REQUIRE(holds(store.open(kept), CheckpointCase(kept, rows)));
  REQUIRE(names_in(directory / "disk/checkpoints").size() == steps.size());
  // After space is freed, saves succeed.
  for (int64_t kept : steps) fs::remove_all(store.path_of(kept));
  const CheckpointCase saved(1000, 100);
  saver.save(saved.info, saved.arrays);
  REQUIRE_NOTHROW(saver.wait());
  REQUIRE(holds(store.open(1000), saved));
}

// Saves forever and keeps two checkpoints; runs in a forked child, which is killed.
[[noreturn]] void save_for_ever(const fs::path& directory, int64_t first) {
  CheckpointSaver saver(CheckpointStore(directory), {.newest = 2});
  for (int64_t step = first;; ++step) {
    const CheckpointCase saved(step, 2000);
    saver.save(saved.info, saved.arrays);
    saver.reads()->await_all();
  }
}

void check_kills(int kills) {
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  const auto begin = std::chrono::steady_clock::now();
  add(store, 1, 2000);
  const std::chrono::duration<double, std::micro> one_save =
      std::chrono::steady_clock::now() - begin;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> saves(0.0, 4.0);
  int64_t newest = 1;
  int leftovers = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = ::fork();
    if (child == 0) save_for_ever(directory.path(), newest + 1);
    // Every fourth child continues at least until its first save.
    while (i % 4 == 0 && *store.newest() == newest) ::usleep(1000);
    ::usleep(static_cast<useconds_t>(saves(random) * one_save.count()));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Steps steps = store.steps();
    leftovers += static_cast<int>(names_in(directory.path()).size() - steps.size());
    for (int64_t step : steps) REQUIRE(holds(store.open(step), CheckpointCase(step, 2000)));
    REQUIRE(store.newest() >= newest);
    newest = *store.newest();
  }
  CAPTURE(newest, leftovers);
  REQUIRE(newest > kills / 4);           // It saved between kills,
  REQUIRE(leftovers > 0);                // was killed while saving,
  remove_temporaries(directory.path());  // and temporary files are removed.
  REQUIRE(names_in(directory.path()).size() == store.steps().size());
}

TEST_CASE("a kill at any moment leaves checkpoints that load") { check_kills(25); }
TEST_CASE("a kill at any of many moments leaves checkpoints that load", "[full]") {
  check_kills(400);
}

}  // namespace
}  // namespace tessera
