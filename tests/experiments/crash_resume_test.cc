// SPDX-License-Identifier: Apache-2.0
// runexp is killed at random moments and restarted with the same command until it is done: every
// loss is bitwise that of an uninterrupted run.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// The length of a run, and how often it saves.
struct Length {
  int64_t steps = 60;
  int64_t save_interval = 4;
};

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
                                 const std::string& dtype, const Length& length = {}) {
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
          "num_train_steps=" + std::to_string(length.steps),
          "--set",
          "task.train.eval_interval_steps=0",
          "--set",
          "task.train.save_interval_steps=" + std::to_string(length.save_interval)};
}

int64_t steps_logged(const fs::path& run) { return static_cast<int64_t>(losses_of(run).size()); }

// The effects of killing a run.
struct Tally {
  int kills = 0, stops = 0, at_the_start = 0, while_saving = 0;
  int64_t most_redone = 0;
};

// Lets the run take a few more steps, or hardly start; then kills it, sometimes after a SIGSTOP for
// a while. Returns whether it was still running.
bool run_and_kill(const std::vector<std::string>& arguments, const fs::path& run,
                  const fs::path& output, int64_t most_steps, std::mt19937& random, Tally* tally) {
  const auto steps = static_cast<int64_t>(random() % static_cast<uint32_t>(most_steps));
  const bool at_the_start = random() % 8 == 0;
  Child child("runexp", arguments, output);
  const int64_t start = steps_logged(run);
  while (!at_the_start && child.running() && steps_logged(run) < start + steps)
    std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(random() % (at_the_start ? 80 : 12)));
  if (random() % 4 == 0) {
    ++tally->stops;
    child.send(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(random() % 40));
    child.send(SIGCONT);
    std::this_thread::sleep_for(milliseconds(random() % 20));
  }
  if (!child.running()) return false;
  child.send(SIGKILL);
  child.wait();
  ++tally->kills;
  if (at_the_start) ++tally->at_the_start;
  return true;
}

// The checkpoints left after a kill are complete, and no more steps are lost than documented.
void check_what_is_left(const fs::path& run, int64_t save_interval, Tally* tally) {
  const CheckpointStore store(run / "checkpoints");
  const std::vector<int64_t> saved = store.steps();
  if (!saved.empty()) read_arrays(store.open(saved.back()));
  // At most one interval is lost, and the steps made while the last checkpoint was written, since
  // the next one does not start before.
  const int64_t newest = saved.empty() ? 0 : saved.back(), step = steps_logged(run);
  REQUIRE(step - newest <= 2 * save_interval);
  tally->most_redone = std::max(tally->most_redone, step - newest);
  if (newest < step / save_interval * save_interval) ++tally->while_saving;
}

void kill_until_done(const std::string& dtype, int kills, uint32_t seed, const Length& length,
                     Tally* tally) {
  const TemporaryDirectory directory;
  const fs::path text = write_text(directory), whole = directory / "whole",
                 broken = directory / "broken", output = directory / "output.txt";
  {
    Child child("runexp", command(text, whole, dtype, length), output);
    REQUIRE(child.wait() == 0);
  }
  fs::create_directories(broken);
  write_bytes(broken / "metrics.jsonl", "");
  std::mt19937 random(seed);
  for (int kill = 0; kill < kills; ++kill) {
    INFO("seed " << seed << ", kill " << kill);
    if (!run_and_kill(command(text, broken, dtype, length), broken, output,
                      3 * length.save_interval, random, tally))
      break;
    check_what_is_left(broken, length.save_interval, tally);
  }
  Child child("runexp", command(text, broken, dtype, length), output);
  const int code = child.wait();
  INFO(child.output());
  REQUIRE(code == 0);
  REQUIRE(losses_of(broken) == losses_of(whole));
  REQUIRE(values_of(broken, "loss").size() == static_cast<size_t>(length.steps));
  REQUIRE(CheckpointStore(broken / "checkpoints").newest() == length.steps);
}

TEST_CASE("killed a few times, a run ends like an uninterrupted one") {
  Tally tally;
  kill_until_done("f32", 3, 1, {}, &tally);
}

TEST_CASE("killed a few times in bf16, a run ends like an uninterrupted one") {
  Tally tally;
  kill_until_done("bf16", 3, 2, {}, &tally);
}

TEST_CASE("killed many times, a run ends like an uninterrupted one", "[full][levels]") {
  Tally tally;
  for (uint32_t seed = 10; seed < 12; ++seed)
    kill_until_done(seed % 2 ? "bf16" : "f32", 12, seed, {}, &tally);
}

TEST_CASE("killed and stopped at 150 random moments, a run ends like an uninterrupted one",
          "[full]") {
  constexpr int kKills = 150;
  constexpr Length kLength{.steps = 240, .save_interval = 12};
  Tally tally;
  for (uint32_t seed = 20; tally.kills < kKills; ++seed)
    kill_until_done(seed % 2 ? "bf16" : "f32", std::min(30, kKills - tally.kills), seed, kLength,
                    &tally);
  fmt::print(
      "seeds from 20: {} kills and {} stops of one process, {} kills while it started, {} while it "
      "saved; at most {} steps done again ({} between saves)\n",
      tally.kills, tally.stops, tally.at_the_start, tally.while_saving, tally.most_redone,
      kLength.save_interval);
  REQUIRE(tally.while_saving > 0);
}

TEST_CASE("SIGTERM and Ctrl-C save and exit 0, and the same command continues") {
  const TemporaryDirectory directory;
  const fs::path text = write_text(directory), run = directory / "run",
                 output = directory / "output.txt";
  for (const int signal : {SIGTERM, SIGINT}) {
    Child child("runexp", command(text, run, "f32"), output);
    const int64_t start = steps_logged(run);
    while (child.running() && steps_logged(run) < start + 3)
      std::this_thread::sleep_for(milliseconds(1));
    child.send(signal);
    const int code = child.wait();
    INFO(child.output());
    REQUIRE(code == 0);
    REQUIRE(values_of(run, "event").back() == "\"preempt\"");
    REQUIRE(CheckpointStore(run / "checkpoints").newest() == steps_logged(run));
  }
  Child child("runexp", command(text, run, "f32"), output);
  REQUIRE(child.wait() == 0);
  REQUIRE(steps_logged(run) == Length().steps);
}

}  // namespace
}  // namespace tessera
