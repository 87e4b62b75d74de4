// SPDX-License-Identifier: Apache-2.0
// A process of a run is killed, stopped or told to stop in the middle: the others end in time, say
// whom they missed and where, and the same command goes on from the last checkpoint.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace filesystem = std::filesystem;

constexpr auto kPatience = 60s;

// A shell command that runs while the test goes on; ended with all it started.
class Background {
 public:
  Background(const filesystem::path& folder, const std::string& command) : folder_(folder) {
    filesystem::remove(folder / "out");
    filesystem::remove(folder / "errors");
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    ::setpgid(pid_, pid_);  // In both, or the other may come too early.
    if (pid_ > 0) return;
    const std::string line =
        fmt::format("cd '{}' && exec {} >out 2>errors </dev/null", folder.string(), command);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ~Background() {
    if (ended_) return;
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  int pid() const { return pid_; }
  std::string output() const {
    return read_bytes(folder_ / "out") + read_bytes(folder_ / "errors");
  }

  // The exit code, or nullopt if it does not end within `time`.
  std::optional<int> wait(std::chrono::seconds time) {
    for (const auto end = Clock::now() + time; Clock::now() < end;
         std::this_thread::sleep_for(20ms)) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
      ended_ = true;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return std::nullopt;
  }

 private:
  filesystem::path folder_;
  int pid_ = -1;
  bool ended_ = false;
};

bool comes_true(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;
       std::this_thread::sleep_for(20ms))
    if (condition()) return true;
  return false;
}

// The process of this rank among those that run in `folder`.
std::optional<int> process_of(const filesystem::path& folder, int rank) {
  const std::string variable = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
  for (const auto& entry : filesystem::directory_iterator("/proc")) {
    std::error_code ignored;
    if (filesystem::read_symlink(entry.path() / "cwd", ignored) != folder) continue;
    const std::string environment = read_bytes(entry.path() / "environ");
    const size_t at = environment.find(variable + '\0');
    if (at != std::string::npos && (at == 0 || environment[at - 1] == '\0'))
      return std::stoi(entry.path().filename().string());
  }
  return std::nullopt;
}

// Runs for ever, saving every few steps.
std::string endless(int timeout_seconds) {
  return "--exp=quickstart.CharLm --job_log_dir=run --set input.path=text.txt --set num_layers=2 "
         "--set model_dims=16 --set num_heads=4 --set hidden_dims=32 --set seq_len=16 "
         "--set global_batch_size=4 --set sample_length=0 --set num_train_steps=1000000000 "
         "--set rules.weights='embed -> data' --set task.train.metrics_interval_steps=1 "
         "--set task.train.save_interval_steps=5 --set task.train.eval_interval_steps=0 "
         "--threads=2 --devices=2 --set task.train.collective_timeout_seconds=" +
         std::to_string(timeout_seconds);
}

int64_t last_step(const filesystem::path& folder) {
  const std::vector<std::string> steps = values_of(folder / "run", "step");
  return steps.empty() ? 0 : std::stoll(steps.back());
}

int64_t last_saved(const filesystem::path& folder) {
  int64_t newest = -1;
  std::error_code ignored;
  for (const auto& entry :
       filesystem::directory_iterator(folder / "run" / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

void write_text(const filesystem::path& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  write_bytes(folder / "text.txt", text);
}

// Sends process 1 of a run on its way a signal; how the run ends is in the result.
Outcome strike(const TemporaryDirectory& folder, int timeout_seconds, int signal) {
  Background run(folder.path(), mpirun_command("-n 2", "runexp", endless(timeout_seconds)));
  INFO(run.output());
  REQUIRE(comes_true([&] { return last_saved(folder.path()) >= 5; }));
  const std::optional<int> victim = process_of(folder.path(), 1);
  REQUIRE(victim);
  const Clock::time_point struck = Clock::now();
  ::kill(*victim, signal);
  const std::optional<int> code = run.wait(kPatience);
  UNSCOPED_INFO(run.output());
  REQUIRE(code);
  return {.exit_code = *code,
          .errors = run.output(),
          .seconds = std::chrono::duration<double>(Clock::now() - struck).count()};
}

// The same command goes on from the last checkpoint, and stops when asked to.
void require_resumes(const TemporaryDirectory& folder, int timeout_seconds) {
  const int64_t saved = last_saved(folder.path());
  Background run(folder.path(), mpirun_command("-n 2", "runexp", endless(timeout_seconds)));
  const std::string restored = fmt::format("restored step {}\n", saved);
  const bool goes_on = comes_true([&] {
    return run.output().find(restored) != std::string::npos &&
           last_step(folder.path()) >= saved + 5;
  });
  UNSCOPED_INFO(run.output());
  REQUIRE(goes_on);
  ::kill(run.pid(), SIGUSR1);  // mpirun passes it on.
  REQUIRE(run.wait(kPatience) == 0);
  const int64_t stopped = last_step(folder.path());
  REQUIRE(last_saved(folder.path()) == stopped);
  REQUIRE_THAT(run.output(), Contains(fmt::format("SIGUSR1: saved step {}", stopped)));
}

TEST_CASE("of a process that hangs the others say where they miss it, and the run resumes",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) {
    WARN("skipped: " + reason);
    return;
  }
  const TemporaryDirectory folder;
  write_text(folder.path());
  constexpr int kTimeout = 4;
  const Outcome outcome = strike(folder, kTimeout, SIGSTOP);
  REQUIRE(outcome.exit_code == 1);
  // A collective of a layer, or the agreement between steps.
  REQUIRE_THAT(outcome.errors, (Contains("has waited 4 s in collective") && Contains("layers[")) ||
                                   (Contains("collective") && Contains("core/passes/")) ||
                                   Contains("did not come to 'step"));
  REQUIRE_THAT(outcome.errors, Contains("process 1"));
  REQUIRE(outcome.seconds < kTimeout + 15);
  require_resumes(folder, kTimeout);
}

TEST_CASE("when a process is killed the others say what they waited for, and the run resumes",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) {
    WARN("skipped: " + reason);
    return;
  }
  const TemporaryDirectory folder;
  write_text(folder.path());
  constexpr int kTimeout = 30;
  const Outcome outcome = strike(folder, kTimeout, SIGKILL);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE_THAT(outcome.errors, Contains("runexp: SIGTERM came while") && Contains(" waits ") &&
                                   Contains("process 1"));
  REQUIRE(outcome.seconds < 15);
  require_resumes(folder, kTimeout);
}

}  // namespace
}  // namespace tessera
