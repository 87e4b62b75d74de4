// SPDX-License-Identifier: Apache-2.0
// Tests a run whose directory is moved, removed or replaced while it trains, or whose files another
// run or program changes.
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/directory/run_directory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// The error that ends an endless run in which, after some steps, `change` happens to its directory.
std::string error_after(const fs::path& run, const std::function<void()>& change,
                        int64_t save_interval = 0) {
  constexpr int64_t kEndless = 50000;
  ExperimentConfig config = tiny_config(kEndless);
  task_of(config).train.save_interval_steps = save_interval;
  std::string error;
  std::jthread training([&] { error = error_of([&] { run_tiny(config, run); }); });
  while (losses_of(run).size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  change();
  training.join();
  return error;
}

std::optional<int64_t> saved_step(const fs::path& run) {
  return CheckpointStore(run / "checkpoints").newest();
}

TEST_CASE("a directory that is moved gets a last checkpoint, and the error has its new path") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "R", moved = folder / "R2";
  bool is_replaced = false;
  SECTION("moved") {}
  SECTION("moved, and another directory made in its place") { is_replaced = true; }
  const std::string error = error_after(run, [&] {
    if (is_replaced) fs::create_directory(moved);
    rename_or_exchange(run, moved);
  });
  REQUIRE_THAT(error, Contains(run.string() + " was moved to " + moved.string()));
  REQUIRE_THAT(error, Contains("Step ") && Contains(" is saved there"));
  REQUIRE((error.find("another directory has its name") != std::string::npos) == is_replaced);
  REQUIRE(fs::exists(run) == is_replaced);
  if (is_replaced) REQUIRE(fs::is_empty(run));
  REQUIRE(saved_step(moved) == static_cast<int64_t>(losses_of(moved).size()));
  ExperimentConfig longer = tiny_config(saved_step(moved).value() + 2);
  RunWith options;
  options.allow_config_change = true;
  REQUIRE(run_tiny(longer, moved, options) == 0);
}

TEST_CASE("a directory that is moved while it saves all the time loses nothing") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "R", moved = folder / "R2";
  const std::string error = error_after(
      run, [&] { fs::rename(run, moved); }, 1);
  REQUIRE_THAT(error, Contains("is saved there"));
  REQUIRE(saved_step(moved) == static_cast<int64_t>(losses_of(moved).size()));
  REQUIRE_FALSE(fs::exists(run));
}

TEST_CASE("a directory that is removed or replaced ends the run, and nothing is written there") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "R";
  bool is_replaced = false;
  SECTION("removed") {}
  SECTION("replaced by the directory of another run") { is_replaced = true; }
  std::optional<RunLock> other;
  const std::string error = error_after(run, [&] {
    while (fs::exists(run)) {  // The run may still add files.
      std::error_code ignored;
      fs::remove_all(run, ignored);
    }
    if (!is_replaced) return;
    fs::create_directory(run);
    other.emplace(run);
  });
  // The run may notice it at the first file that is removed.
  REQUIRE_THAT(error, Contains("was removed") && Contains("without saving"));
  REQUIRE(fs::exists(run) == is_replaced);
  if (is_replaced) REQUIRE(std::distance(fs::directory_iterator(run), {}) == 1);  // Its lock.
}

TEST_CASE("a run stops when another has taken its lock, and saves nothing more") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "R";
  std::optional<RunLock> other;
  const std::string error = error_after(run, [&] {
    fs::remove(run / "lock");
    other.emplace(run);
  });
  REQUIRE_THAT(error, Contains("R/lock was removed or replaced") && Contains("without saving"));
  REQUIRE(saved_step(run) == std::nullopt);
}

TEST_CASE(
    "a log that another program cuts ends the run after a save, one that it removes without") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "R", log = run / "metrics.jsonl";
  REQUIRE_THAT(error_after(run, [&] { fs::resize_file(log, 10); }),
               Contains("metrics.jsonl was truncated") && Contains("is saved there"));
  REQUIRE(saved_step(run).value_or(0) >= 3);
  fs::remove_all(run);
  REQUIRE_THAT(error_after(run, [&] { fs::remove(log); }),
               Contains("metrics.jsonl was removed or replaced") && Contains("without saving"));
  REQUIRE(saved_step(run) == std::nullopt);
}

}  // namespace
}  // namespace tessera
