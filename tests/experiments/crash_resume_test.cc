// SPDX-License-Identifier: Apache-2.0
// runexp killed at any moment, and run again by the same command until it is done: every loss is
// bitwise that of a run left alone.
#include <chrono>
#include <random>
#include <thread>

#include "core/base/file.h"
#include "core/runtime/checkpoint_store.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int64_t kSteps = 60, kSaveInterval = 4;

fs::path write_text(const TemporaryDirectory& directory) {
  std::mt19937 generator(7);
  const char* const words[] = {"the ", "cat ", "sat ", "on ", "a ", "mat, ", "and ", "purred.\n"};
  std::string text;
  while (text.size() < 30000) text += words[generator() % 8];
  const fs::path path = directory / "words.txt";
  write_bytes(path, text);
  return path;
}

std::vector<std::string> command(const fs::path& text, const fs::path& run,
                                 const std::string& dtype) {
  return {"--exp=quickstart.CharLm",
          "--job_log_dir=" + run.string(),
          "--threads=1",
          "--set",
          "input.path=" + text.string(),
          "--set",
          "compute_dtype=" + dtype,
          "--set",
          "model_dims=32",
          "--set",
          "hidden_dims=64",
          "--set",
          "num_layers=2",
          "--set",
          "dropout_rate=0.1",
          "--set",
          "sample_length=0",
          "--set",
          "num_train_steps=" + std::to_string(kSteps),
          "--set",
          "task.train.eval_interval_steps=0",
          "--set",
          "task.train.save_interval_steps=" + std::to_string(kSaveInterval)};
}

int64_t steps_logged(const fs::path& run) { return static_cast<int64_t>(losses_of(run).size()); }

// Lets the run take `steps` more steps, and a little longer; then kills it. Returns whether it was
// still running.
bool run_and_kill(const std::vector<std::string>& arguments, const fs::path& run,
                  const fs::path& output, int64_t steps, milliseconds longer) {
  Child child("runexp", arguments, output);
  const int64_t start = steps_logged(run);
  while (child.running() && steps_logged(run) < start + steps)
    std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(longer);
  const bool running = child.running();
  child.send(SIGKILL);
  child.wait();
  return running;
}

void kill_until_done(const std::string& dtype, int kills, uint32_t seed) {
  const TemporaryDirectory directory;
  const fs::path text = write_text(directory), whole = directory / "whole",
                 broken = directory / "broken", output = directory / "output.txt";
  {
    Child child("runexp", command(text, whole, dtype), output);
    REQUIRE(child.wait() == 0);
  }
  fs::create_directories(broken);
  write_bytes(broken / "metrics.jsonl", "");
  std::mt19937 random(seed);
  for (int kill = 0; kill < kills; ++kill) {
    const auto steps = static_cast<int64_t>(random() % 14);
    const milliseconds longer(random() % 12);
    INFO("kill " << kill << " after " << steps << " steps and " << longer.count() << " ms");
    if (!run_and_kill(command(text, broken, dtype), broken, output, steps, longer)) break;
    const std::vector<int64_t> saved = CheckpointStore(broken / "checkpoints").steps();
    if (!saved.empty()) CheckpointStore(broken / "checkpoints").open(saved.back()).verify();
    // No more than one interval is lost, and what the saving thread was writing.
    const int64_t newest = saved.empty() ? 0 : saved.back();
    REQUIRE(steps_logged(broken) - newest <= 2 * kSaveInterval);
  }
  Child child("runexp", command(text, broken, dtype), output);
  INFO(read_file(output));
  REQUIRE(child.wait() == 0);
  REQUIRE(losses_of(broken) == losses_of(whole));
  REQUIRE(values_of(broken, "loss").size() == static_cast<size_t>(kSteps));
  REQUIRE(CheckpointStore(broken / "checkpoints").newest() == kSteps);
}

TEST_CASE("killed a few times, a run ends as if it had been left alone") {
  kill_until_done("f32", 3, 1);
}

TEST_CASE("killed a few times in bf16, a run ends as if it had been left alone") {
  kill_until_done("bf16", 3, 2);
}

TEST_CASE("killed over and over, a run ends as if it had been left alone", "[full][levels]") {
  for (uint32_t seed = 10; seed < 16; ++seed) kill_until_done(seed % 2 ? "bf16" : "f32", 12, seed);
}

TEST_CASE("SIGTERM and Ctrl-C save and exit 0, and the same command goes on") {
  const TemporaryDirectory directory;
  const fs::path text = write_text(directory), run = directory / "run",
                 output = directory / "output.txt";
  for (const int signal : {SIGTERM, SIGINT}) {
    Child child("runexp", command(text, run, "f32"), output);
    const int64_t start = steps_logged(run);
    while (child.running() && steps_logged(run) < start + 3)
      std::this_thread::sleep_for(milliseconds(1));
    child.send(signal);
    INFO(child.output());
    REQUIRE(child.wait() == 0);
    REQUIRE(values_of(run, "event").back() == "\"preempt\"");
    REQUIRE(CheckpointStore(run / "checkpoints").newest() == steps_logged(run));
  }
  Child child("runexp", command(text, run, "f32"), output);
  REQUIRE(child.wait() == 0);
  REQUIRE(steps_logged(run) == kSteps);
}

}  // namespace
}  // namespace tessera
