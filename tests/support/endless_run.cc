// SPDX-License-Identifier: Apache-2.0
#include "tests/support/endless_run.h"

#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera {

namespace fs = std::filesystem;

std::string arguments_of(const EndlessRun& run) {
  return fmt::format(
      "--exp=quickstart.CharLm --job_log_dir=run --set input.path=text.txt --set num_layers=2 "
      "--set model_dims=16 --set num_heads=4 --set hidden_dims=32 --set seq_len=16 "
      "--set global_batch_size=4 --set sample_length=0 --set num_train_steps=1000000000 "
      "--set rules.weights='embed -> data' --set task.train.metrics_interval_steps=1 "
      "--set task.train.save_interval_steps={} --set task.train.eval_interval_steps={} "
      "--threads=1 --devices=1 --set task.train.collective_timeout_seconds={}",
      run.save_interval, run.evaluates ? 1 : 0, run.timeout_seconds);
}

void send_signal(int process, int signal) {
  if (signal == SIGKILL) {
    ::kill(process, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  ::kill(process, signal);
}

void write_text(const fs::path& folder) { write_small_text(folder, 1000); }

std::optional<int> process_of(const fs::path& folder, int rank, const std::string& variable) {
  const std::string setting = fmt::format("{}={}", variable, rank);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code ignored;
    if (fs::read_symlink(entry.path() / "cwd", ignored) != folder) continue;
    if (!read_bytes(entry.path() / "comm").starts_with("runexp")) continue;
    const std::string environment = '\0' + read_bytes(entry.path() / "environ");
    if (environment.find('\0' + setting + '\0') != std::string::npos)
      return std::stoi(entry.path().filename().string());
  }
  return std::nullopt;
}

int64_t last_step(const fs::path& folder) {
  const std::vector<std::string> steps = values_of(folder / "run", "step");
  return steps.empty() ? 0 : std::stoll(steps.back());
}

int64_t last_saved(const fs::path& folder) {
  int64_t newest = -1;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "run" / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

std::map<std::string, std::string> losses_left_alone(const EndlessRun& run, int64_t steps) {
  const TemporaryDirectory folder;
  write_text(folder.path());
  Background alone(folder.path(), mpirun_command("-n 2", "runexp", arguments_of(run)));
  const bool came = comes_true([&] { return last_step(folder.path()) >= steps; });
  INFO(alone.output());
  REQUIRE(came);
  ::kill(alone.pid(), SIGUSR1);
  REQUIRE(alone.wait(std::chrono::seconds(60)) == 0);
  return losses_of(folder / "run");
}

void require_losses(const fs::path& folder, const std::map<std::string, std::string>& expected) {
  const std::map<std::string, std::string> losses = losses_of(folder / "run");
  REQUIRE_FALSE(losses.empty());
  REQUIRE(losses.size() <= expected.size());
  for (const auto& [step, loss] : losses) {
    INFO("step " << step);
    REQUIRE(expected.count(step) == 1);
    REQUIRE(loss == expected.at(step));
  }
  REQUIRE(values_of(folder / "run", "loss").size() == losses.size());  // No step is logged twice.
}

}  // namespace tessera
