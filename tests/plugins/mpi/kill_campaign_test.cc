// SPDX-License-Identifier: Apache-2.0
// One of two processes is killed or suspended at fifty random moments, also while it starts and
// while it saves: the other one reports each kill, nothing hangs, no checkpoint is damaged, and
// every loss has the bits of an undisturbed run.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <sstream>
#include <thread>

#include <fmt/ranges.h>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/child.h"
#include "tests/support/endless_run.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

constexpr int kRuns = 2;  // At once, since mpirun mostly waits after a kill.
constexpr int kKills = 25;
constexpr EndlessRun kEndless{.timeout_seconds = 30, .save_interval = 20};

// The outcome of the kills in one run.
struct Campaign {
  std::vector<std::string> problems;
  int kills = 0, stops = 0, while_saving = 0;
  int training = 0, named = 0;  // Kills during training, and those whose report names the process.
  int64_t most_redone = 0;
};

std::string failures(const std::filesystem::path& folder) {
  return read_bytes(folder / "run/failures.log");
}

void sleep_some(std::mt19937& random, int most) {
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<uint32_t>(most)));
}

// The other process reports that a signal came while it waited, and for which process.
void check_report(const std::string& output, const std::string& log, int rank, bool training,
                  Campaign* campaign) {
  std::string report = log;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.find("runexp: SIGTERM came while") != std::string::npos) report += line + '\n';
  const auto says = [&](const std::string& text) { return report.find(text) != std::string::npos; };
  const bool named = says(fmt::format("process {}", rank));
  if (training) ++campaign->training;
  if (training && named) ++campaign->named;
  // While processes join, none is waited for by name; and a process may be busy by itself.
  const bool may_not_name = !training || says("waits for no other process");
  if (output.find("runexp: SIGTERM came while") == std::string::npos ||
      !says(fmt::format("process {}", 1 - rank)) || !(named || may_not_name))
    campaign->problems.push_back(
        fmt::format("no report that process {} was killed: {}{}", rank, output, log));
}

// The newest checkpoint is complete, and a kill costs no more steps than documented.
void check_checkpoints(const std::filesystem::path& folder, Campaign* campaign) {
  const CheckpointStore store(folder / "run/checkpoints");
  const int64_t saved = std::max<int64_t>(0, last_saved(folder)), step = last_step(folder);
  try {
    if (saved > 0) read_arrays(store.open(saved));
  } catch (const std::exception& error) {
    campaign->problems.push_back(error.what());
  }
  // At most one interval is lost, and the steps that were made while the last checkpoint was being
  // written, since the next one starts only after it.
  if (step - saved > 2 * kEndless.save_interval)
    campaign->problems.push_back(
        fmt::format("killed at step {}, but the newest checkpoint is of step {}", step, saved));
  if (saved < step / kEndless.save_interval * kEndless.save_interval) ++campaign->while_saving;
  campaign->most_redone = std::max(campaign->most_redone, step - saved);
}

// Starts the run, kills one of its processes and adds what went wrong to `campaign`.
void kill_once(const std::filesystem::path& folder, std::mt19937& random, Campaign* campaign) {
  const auto expect = [&](bool condition, const std::string& problem) {
    if (!condition) campaign->problems.push_back(problem);
  };
  Background run(folder, mpirun_command("-n 2", "runexp", arguments_of(kEndless)));
  const int rank = static_cast<int>(random() % 2);
  // A quarter of the kills hit the start, the others training.
  const int64_t start = last_step(folder);
  const size_t log_before = failures(folder).size();
  const bool training = random() % 4 != 0 && comes_true([&] { return last_step(folder) > start; });
  std::optional<int> victim;
  expect(comes_true(
             [&] { return process_of(folder, 1 - rank) && (victim = process_of(folder, rank)); }),
         "the processes did not start: " + run.output());
  if (!victim) return;
  sleep_some(random, 400);
  if (random() % 3 == 0) {
    ++campaign->stops;
    ::kill(*victim, SIGSTOP);
    sleep_some(random, 300);
    ::kill(*victim, SIGCONT);
    sleep_some(random, 200);
  }
  ++campaign->kills;
  ::kill(*victim, SIGKILL);
  const bool ended =
      comes_true([&] { return !process_of(folder, 0) && !process_of(folder, 1); }, 30s);
  // mpirun itself may hang after a kill while processes join; Background then kills it.
  const std::optional<int> code = run.wait(10s);
  const std::string output = run.output();
  expect(ended, "a hang: " + output);
  expect(code != 0, "no failure: " + output);
  check_report(output, failures(folder).substr(log_before), rank, training, campaign);
  check_checkpoints(folder, campaign);
}

Campaign kill_often(const std::filesystem::path& folder, uint32_t seed) {
  std::mt19937 random(seed);
  Campaign campaign;
  write_text(folder);
  for (int i = 0; i < kKills && campaign.problems.empty(); ++i)
    kill_once(folder, random, &campaign);
  // Without kills the run continues.
  Background run(folder, mpirun_command("-n 2", "runexp", arguments_of(kEndless)));
  const int64_t start = last_step(folder);
  if (!comes_true([&] { return last_step(folder) > start + 5; }))
    campaign.problems.push_back("it does not continue: " + run.output());
  ::kill(run.pid(), SIGUSR1);
  if (run.wait(30s) != 0) campaign.problems.push_back("it does not end: " + run.output());
  return campaign;
}

TEST_CASE(
    "kills and suspensions of one of two processes at fifty random moments do not change any loss",
    "[mpi][full]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folders[kRuns];
  std::vector<std::future<Campaign>> campaigns;
  for (uint32_t i = 0; i < kRuns; ++i)
    campaigns.push_back(std::async(std::launch::async, kill_often, folders[i].path(), 100 + i));
  int64_t steps = 0;
  for (uint32_t i = 0; i < kRuns; ++i) {
    const Campaign campaign = campaigns[i].get();
    fmt::print(
        "seed {}: {} kills and {} suspensions of one of two processes, {} while saving; {} during "
        "training, {} of them reported by name; {} steps, at most {} repeated ({} between saves)\n",
        100 + i, campaign.kills, campaign.stops, campaign.while_saving, campaign.training,
        campaign.named, last_step(folders[i].path()), campaign.most_redone, kEndless.save_interval);
    INFO("seed " << 100 + i << ": " << fmt::format("{}", fmt::join(campaign.problems, "\n")));
    REQUIRE(campaign.problems.empty());
    REQUIRE(campaign.kills == kKills);
    REQUIRE(campaign.named > 0);
    steps = std::max(steps, last_step(folders[i].path()));
  }
  const auto alone = losses_left_alone(kEndless, steps);
  for (const TemporaryDirectory& folder : folders) require_losses(folder.path(), alone);
}

}  // namespace
}  // namespace tessera
