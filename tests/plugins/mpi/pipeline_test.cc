// SPDX-License-Identifier: Apache-2.0
// Pipelines whose stages are in different processes: the losses of one process, checkpoints that
// other processes resume, and a stage that is killed, hangs or cannot be.
#include <signal.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/endless_run.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using namespace std::chrono_literals;
using Losses = std::map<std::string, std::string>;

// Four layers and four microbatches, with a table that the first and the last stage share.
const std::string kTiny =
    "--exp=quickstart.CharLm --job_log_dir=run --set input.path=text.txt --set num_layers=4 "
    "--set model_dims=16 --set num_heads=4 --set hidden_dims=32 --set seq_len=16 "
    "--set global_batch_size=8 --set warmup_steps=1 --set sample_length=0 "
    "--set task.train.metrics_interval_steps=1 --set task.train.eval_interval_steps=0 "
    "--set task.train.num_microbatches=4 "
    "--set task.model.lm_tpl.stacked_transformer_tpl=Repeated --threads=2 ";
const std::string kSteps = "--set num_train_steps=6 ";

// On a mesh {stage, replica, data, mdl}.
std::string staged(const std::string& strategy, const std::string& shape,
                   const std::string& schedule = "OneForwardOneBackward") {
  return fmt::format(
      "--set strategy={} --set ici_mesh_shape={} --set task.train.pipeline_schedule={} ", strategy,
      shape, schedule);
}

std::string alone(const std::string& arguments) {
  return "'" TESSERA_BINARY_DIR "/bin/runexp' " + arguments;
}

Outcome run_in(const TemporaryDirectory& folder, const std::string& command) {
  return successful(shell(folder.path(), command));
}

Losses losses(const std::string& command) {
  const TextFolder folder;
  run_in(folder, command);
  Losses found = losses_of(folder / "run");
  REQUIRE(found.size() == 6);
  return found;
}

void require_near(const Losses& got, const Losses& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [step, loss] : expected) {
    INFO("step " << step << ": " << got.at(step) << ", expected " << loss);
    REQUIRE(std::fabs(std::stod(got.at(step)) / std::stod(loss) - 1) < 1e-5);
  }
}

TEST_CASE("stages in processes of their own have the losses of one process and of one device",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const std::string base = kTiny + kSteps;
  const Losses one = losses(alone(base));
  const std::string four = base + staged("pipeline", "[4,1,1,1]");
  const Losses together = losses(alone(four + "--devices=4"));
  require_near(together, one);
  REQUIRE(losses(mpirun_command("-n 4", "runexp", four)) == together);  // Equal bits.
  // Two devices in each process, where a stage is one process or the half of each.
  const std::string two = base + staged("fsdp_pipeline", "[2,1,2,1]", "ZeroBubbleH1");
  require_near(losses(mpirun_command("-n 2", "runexp", two + "--devices=2")), one);
  const std::string crossed =
      base + staged("pipeline", "[2,1,1,1]") + "--set dcn_mesh_shape=[1,1,2,1] ";
  require_near(losses(mpirun_command("-n 2", "runexp", crossed + "--devices=2")), one);
}

TEST_CASE("a checkpoint of stages in two processes resumes in one process, and back", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const Losses one = losses(alone(kTiny + kSteps));
  const TextFolder folder;
  const std::string moved =
      kTiny + kSteps + "--set task.train.save_interval_steps=2 --allow_config_change ";
  const auto two_processes = [&](const std::string& schedule) {
    return mpirun_command("-n 2", "runexp", moved + staged("pipeline", "[2,1,1,1]", schedule));
  };
  // Makes the run look as if it had ended at an earlier step.
  const auto forget = [&](int64_t step) {
    std::filesystem::remove_all(folder / fmt::format("run/checkpoints/step_{:010}", step));
  };
  run_in(folder, two_processes("OneForwardOneBackward"));
  forget(6);
  forget(4);
  REQUIRE(std::filesystem::exists(folder / "run/checkpoints/step_0000000002/host_00001.h5"));
  REQUIRE_THAT(run_in(folder, alone(moved)).out, Contains("restored step 2"));
  require_near(losses_of(folder / "run"), one);
  forget(6);
  REQUIRE_THAT(run_in(folder, two_processes("GPipe")).out, Contains("restored step 4"));
  require_near(losses_of(folder / "run"), one);
}

// Sends a signal to the process of stage 1 of a run without end; returns how the run ends.
Outcome signal_stage_1(int signal, int timeout_seconds) {
  const TemporaryDirectory folder;
  write_text(folder.path());
  Background run(folder.path(),
                 mpirun_command("-n 2", "runexp",
                                kTiny + staged("pipeline", "[2,1,1,1]") +
                                    fmt::format("--set num_train_steps=1000000000 --set "
                                                "task.train.collective_timeout_seconds={} ",
                                                timeout_seconds)));
  const bool trains = comes_true([&] { return last_step(folder.path()) >= 3; });
  INFO(run.output());
  REQUIRE(trains);
  const std::optional<int> victim = process_of(folder.path(), 1);
  REQUIRE(victim);
  const auto signalled = std::chrono::steady_clock::now();
  send_signal(*victim, signal);
  const std::optional<int> code = run.wait(60s);
  const auto seconds = std::chrono::steady_clock::now() - signalled;
  UNSCOPED_INFO(run.output());
  REQUIRE(code);
  return {.exit_code = *code,
          .out = "",
          .errors = run.output(),
          .seconds = std::chrono::duration<double>(seconds).count()};
}

TEST_CASE("a stage that hangs or is killed ends the run, and the other stage reports it", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const Outcome hung = with_code(1, signal_stage_1(SIGSTOP, 4));
  REQUIRE(hung.seconds < 20);
  // In a transfer between stages, a sum over them, or between steps.
  REQUIRE_THAT(hung.errors,
               Contains("process 1 (host ") &&
                   (Contains("has waited 4 s in collective") || Contains(") did not reach '")));
  const Outcome killed = signal_stage_1(SIGKILL, 30);
  INFO(killed.errors);
  REQUIRE(killed.exit_code != 0);
  REQUIRE(killed.seconds < 20);  // It does not wait for the timeout.
  REQUIRE_THAT(killed.errors, Contains("runexp: SIGTERM came while") && Contains("process 0") &&
                                  Contains("process 1") && Contains(" waits "));
}

TEST_CASE("processes that cannot be stages are refused before step 0", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const auto message = [](const std::string& arguments) {
    const TextFolder folder;
    const Outcome outcome = with_code(
        2, shell(folder.path(), mpirun_command("-n 2", "runexp", kTiny + kSteps + arguments)));
    REQUIRE_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
    return outcome.errors;
  };
  REQUIRE_THAT(message(staged("pipeline", "[3,1,1,1]")),
               Contains("runexp: mesh stage=3 replica=1 data=1 mdl=1 needs 3 devices, but 2 "
                        "processes with 1 each have 2"));
  // Stage 1 starts with a microbatch that stage 0 sends after a gradient that stage 1 owes it.
  REQUIRE_THAT(
      message(staged("pipeline", "[2,1,1,1]", "WrittenPipeline") +
              "--set 'task.train.pipeline_schedule.stages=[\"F0 B0 F1 B1 F2 B2 F3 B3\", "
              "\"F1 B1 F0 B0 F2 B2 F3 B3\"]' "),
      Contains("runexp: WrittenPipeline: the schedule never ends: stage 0 stops at B0 (tick 1) "));
}

}  // namespace
}  // namespace tessera
