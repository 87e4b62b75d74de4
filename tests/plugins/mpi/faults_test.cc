// SPDX-License-Identifier: Apache-2.0
// A process of a run is killed, suspended or told to stop: the others end in time and report which
// process is missing and where, and the same command resumes from the last checkpoint.
#include <signal.h>

#include <chrono>
#include <thread>

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
using Clock = std::chrono::steady_clock;

constexpr auto kTimeout = 60s;

std::string command_of(const EndlessRun& run) {
  return mpirun_command("-n 2", "runexp", arguments_of(run));
}

// Sends a signal to process 1 of a training run; returns how the run ends.
Outcome signal_process_1(const TemporaryDirectory& folder, const EndlessRun& endless, int signal) {
  Background run(folder.path(), command_of(endless));
  const bool saved = comes_true([&] { return last_saved(folder.path()) >= 5; });
  INFO(run.output());
  REQUIRE(saved);
  const std::optional<int> victim = process_of(folder.path(), 1);
  REQUIRE(victim);
  const Clock::time_point signalled = Clock::now();
  send_signal(*victim, signal);
  const std::optional<int> code = run.wait(kTimeout);
  UNSCOPED_INFO(run.output());
  REQUIRE(code);
  return {.exit_code = *code,
          .errors = run.output(),
          .seconds = std::chrono::duration<double>(Clock::now() - signalled).count()};
}

// REQUIREs that repeating the command resumes from the last checkpoint, and that the run stops on
// request.
void require_resumes(const TemporaryDirectory& folder, const EndlessRun& endless) {
  const int64_t saved = last_saved(folder.path());
  Background run(folder.path(), command_of(endless));
  const std::string restored = fmt::format("restored step {}\n", saved);
  const bool continues = comes_true([&] {
    return run.output().find(restored) != std::string::npos &&
           last_step(folder.path()) >= saved + 5;
  });
  UNSCOPED_INFO(run.output());
  REQUIRE(continues);
  ::kill(run.pid(), SIGUSR1);  // mpirun forwards it.
  REQUIRE(run.wait(kTimeout) == 0);
  const int64_t stopped = last_step(folder.path());
  REQUIRE(last_saved(folder.path()) == stopped);
  REQUIRE_THAT(run.output(), Contains(fmt::format("SIGUSR1: saved step {}", stopped)));
}

TEST_CASE(
    "a process that hangs is reported with the collective it is missing from, and the run resumes",
    "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  write_text(folder.path());
  const EndlessRun endless{.timeout_seconds = 4};
  const Outcome outcome = with_code(1, signal_process_1(folder, endless, SIGSTOP));
  // In a collective of a layer, or in the collective of the processes between steps.
  REQUIRE_THAT(outcome.errors, (Contains("has waited 4 s in collective") && Contains("layers[")) ||
                                   (Contains("collective") && Contains("core/compile/")) ||
                                   (Contains("collective") && Contains("tasks/")) ||
                                   (Contains("process 1 (host ") && Contains(") did not reach '")));
  REQUIRE_THAT(outcome.errors, Contains("process 1"));
  REQUIRE(outcome.seconds < endless.timeout_seconds + 15);
  // mpirun resumes the suspended process to end it; that process does not blame the other one.
  if (mpirun_waits_after_sigterm())
    REQUIRE_THAT(outcome.errors, Contains("SIGTERM came after this process itself, process 1"));
  REQUIRE_THAT(outcome.errors, !Contains("for process 0") && !Contains("for device 0") &&
                                   !Catch::Matches("process 0 \\(host [^)]*\\) did not"));
  const std::string log = read_bytes(folder / "run/failures.log");
  REQUIRE_THAT(log, Contains("process 1") && Contains("Z "));
  require_resumes(folder, endless);
}

TEST_CASE("when a process is killed the others report what they waited for, and the run resumes",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  write_text(folder.path());
  const EndlessRun endless;
  const Outcome outcome = signal_process_1(folder, endless, SIGKILL);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE_THAT(outcome.errors, Contains("runexp: SIGTERM came while") && Contains(" waits ") &&
                                   Contains("process 1"));
  REQUIRE_THAT(read_bytes(folder / "run/failures.log"),
               Contains("SIGTERM came while") && Contains("process 1"));
  REQUIRE(outcome.seconds < 15);
  require_resumes(folder, endless);
}

TEST_CASE("a process killed while the processes join is reported too", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  write_text(folder.path());
  Background run(folder.path(), command_of({}));
  std::optional<int> victim;
  REQUIRE(comes_true([&] { return (victim = process_of(folder.path(), 0)).has_value(); }));
  REQUIRE(comes_true([&] { return process_of(folder.path(), 1).has_value(); }));
  std::this_thread::sleep_for(50ms);
  ::kill(*victim, SIGKILL);
  // Open MPI's own processes may hang after a kill at this moment; ours do not.
  REQUIRE(comes_true([&] { return !process_of(folder.path(), 1); }));
  const bool reported = comes_true(
      [&] {
        return run.output().find("runexp: SIGTERM came while process 1") != std::string::npos;
      },
      10s);
  INFO(run.output());
  REQUIRE(reported);
}

TEST_CASE("an evaluation that loses a process reports it", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TemporaryDirectory folder;
  write_text(folder.path());
  const EndlessRun endless;
  {
    Background run(folder.path(), command_of(endless));
    REQUIRE(comes_true([&] { return last_saved(folder.path()) >= 5; }));
    ::kill(run.pid(), SIGUSR1);
    REQUIRE(run.wait(kTimeout) == 0);
  }
  Background eval(folder.path(), command_of(endless) + " --mode=eval --checkpoint=follow");
  const bool evaluated =
      comes_true([&] { return eval.output().find("log_pplx") != std::string::npos; });
  UNSCOPED_INFO(eval.output());
  REQUIRE(evaluated);
  const std::optional<int> victim = process_of(folder.path(), 0);
  REQUIRE(victim);
  ::kill(*victim, SIGKILL);
  const std::optional<int> code = eval.wait(kTimeout);
  INFO(eval.output());
  REQUIRE(code);
  REQUIRE(code != 0);
  if (mpirun_waits_after_sigterm())
    REQUIRE_THAT(eval.output(), Contains("runexp: SIGTERM came while") && Contains("process 1") &&
                                    Contains(" for ") && Contains("process 0"));
}

}  // namespace
}  // namespace tessera
