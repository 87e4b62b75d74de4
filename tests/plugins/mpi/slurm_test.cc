// SPDX-License-Identifier: Apache-2.0
// Runs started by Slurm on two nodes, by srun and by the batch script of docs/launching.md. Losses
// are bitwise those under mpirun. A job saves at its time limit, when it is requeued and when it is
// cancelled, and resumes. A lost node is named.
#include <chrono>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/endless_run.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"

namespace tessera {
namespace {

using Catch::Contains;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kLimit = 150s;  // Slurm checks time limits twice a minute.

// A user's folder: runexp, a text, and the batch script of the docs.
class JobFolder : public TemporaryDirectory {
 public:
  JobFolder() {
    write_text(path());
    fs::create_symlink(TESSERA_BINARY_DIR "/bin/runexp", path() / "runexp");
    const std::string page = read_bytes(TESSERA_SOURCE_DIR "/docs/launching.md");
    const std::string opening = "```bash\n#!/bin/bash\n#SBATCH";
    const size_t begin = page.find(opening);
    REQUIRE(begin != std::string::npos);
    REQUIRE(page.find(opening, begin + 1) == std::string::npos);
    const size_t script = page.find('\n', begin) + 1;
    write_bytes(path() / "train.sbatch", page.substr(script, page.find("```", script) - script));
  }
  std::string output() const { return read_bytes(path() / "log.txt"); }
};

std::string srun(const std::string& options, const EndlessRun& endless) {
  return fmt::format("exec srun --mpi=pmix --nodes=2 --ntasks-per-node=1 {} ./runexp {}", options,
                     arguments_of(endless));
}

// Submits a job; returns its number.
std::string submit(SlurmCluster& cluster, const JobFolder& folder, const std::string& arguments) {
  const Outcome outcome = successful(cluster.run(
      "left", folder.path(), "sbatch --parsable --cpus-per-task=1 --output=log.txt " + arguments));
  return outcome.out.substr(0, outcome.out.find('\n'));
}

std::string state_of(SlurmCluster& cluster, const JobFolder& folder, const std::string& job) {
  return cluster.run("left", folder.path(), "scontrol show job " + job).out;
}

// Waits until the log has the text `times` times.
void wait_for_text(const JobFolder& folder, const std::string& text, int times) {
  const auto count = [&] {
    int found = 0;
    const std::string output = folder.output();
    for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1))
      ++found;
    return found;
  };
  const bool came = comes_true([&] { return count() >= times; }, kLimit);
  INFO("expected '" << text << "' " << times << " times in:\n" << folder.output());
  REQUIRE(came);
}

void wait_for_step(const SlurmCluster& cluster, const JobFolder& folder, int64_t step) {
  const bool came = comes_true([&] { return last_step(folder.path()) >= step; }, kLimit);
  INFO(folder.output() << read_bytes(folder / "out") << read_bytes(folder / "errors")
                       << cluster.logs());
  REQUIRE(came);
}

TEST_CASE("a run started by srun on two nodes has the losses of mpirun, and ends when told to",
          "[slurm][full]") {
  if (const std::string reason = why_no_slurm(); !reason.empty()) return skip_test(reason);
  SlurmCluster cluster;
  const JobFolder folder;
  Background run(folder.path(), cluster.on("left", folder.path(), srun("--job-name=first", {})));
  wait_for_step(cluster, folder, 20);
  successful(cluster.run("left", folder.path(), "scancel --name=first --signal=USR1"));
  const std::optional<int> exit_code = run.wait(120s);
  INFO(run.output() << cluster.logs());
  REQUIRE(exit_code == 0);
  REQUIRE_THAT(run.output(),
               Contains(fmt::format("SIGUSR1: saved step {}", last_step(folder.path()))));
  REQUIRE(values_of(folder / "run", "processes").front() == "2");
  require_losses(folder.path(), losses_left_alone({}, last_step(folder.path())));
}

TEST_CASE("srun without a way to join the processes is refused with the missing option",
          "[slurm][full]") {
  if (const std::string reason = why_no_slurm(); !reason.empty()) return skip_test(reason);
  SlurmCluster cluster;
  const JobFolder folder;
  const Outcome outcome =
      cluster.run("left", folder.path(), "srun --mpi=none --nodes=2 ./runexp " + arguments_of({}));
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE_THAT(outcome.errors, Contains("runexp: srun started") && Contains("srun --mpi=pmix"));
}

// The job reached its time limit: it saved, and the same command resumes.
void require_time_limit_met(SlurmCluster& cluster, const JobFolder& folder, const std::string& job,
                            const EndlessRun& endless) {
  wait_for_text(folder, "SIGTERM: saved step", 1);
  const int64_t steps = last_step(folder.path());
  REQUIRE(last_saved(folder.path()) == steps);
  const bool ended = comes_true(
      [&] { return state_of(cluster, folder, job).find("JobState=TIMEOUT") != std::string::npos; },
      30s);
  REQUIRE(ended);
  const std::string again = submit(cluster, folder, "train.sbatch " + arguments_of(endless));
  wait_for_text(folder, fmt::format("restored step {}\n", steps), 1);
  wait_for_step(cluster, folder, steps + 2);
  // Cancelled, so that the run it is compared with has to make no more steps.
  REQUIRE(cluster.run("left", folder.path(), "scancel " + again).exit_code == 0);
  wait_for_text(folder, "SIGTERM: saved step", 2);
  require_losses(folder.path(), losses_left_alone({}, last_step(folder.path())));
}

TEST_CASE("a batch job saves at its time limit, when requeued and when cancelled, and resumes",
          "[slurm][full]") {
  if (const std::string reason = why_no_slurm(); !reason.empty()) return skip_test(reason);
  SlurmCluster cluster;
  const EndlessRun endless{.evaluates = true};
  // The first job runs into its time limit, which takes more than a minute. At the same time the
  // second is signalled before its time limit, and stopped in other ways.
  const JobFolder limited, folder;
  const std::string limited_job =
      submit(cluster, limited, "--time=1 --signal=B:URG@1 train.sbatch " + arguments_of(endless));
  const std::string job =
      submit(cluster, folder, "--time=1 --signal=B:USR1@10 train.sbatch " + arguments_of(endless));
  wait_for_text(folder, "SIGUSR1: saved step", 1);
  wait_for_text(folder, "restored step", 1);
  wait_for_step(cluster, folder, last_step(folder.path()) + 2);
  REQUIRE_THAT(state_of(cluster, folder, job), Contains("Restarts=1"));

  REQUIRE(cluster.run("left", folder.path(), "scontrol requeue " + job).exit_code == 0);
  wait_for_text(folder, "SIGTERM: saved step", 1);
  wait_for_text(folder, "restored step", 2);
  wait_for_step(cluster, folder, last_step(folder.path()) + 2);

  REQUIRE(cluster.run("left", folder.path(), "scancel " + job).exit_code == 0);
  wait_for_text(folder, "SIGTERM: saved step", 2);
  const int64_t steps = last_step(folder.path());
  REQUIRE(last_saved(folder.path()) == steps);
  REQUIRE_THAT(folder.output(), !Contains("Terminated"));  // Ended by a signal without saving.
  require_losses(folder.path(), losses_left_alone({}, steps));
  require_time_limit_met(cluster, limited, limited_job, endless);
}

// Kills the processes of this name on the right node only.
void kill_on_right(SlurmCluster& cluster, const JobFolder& folder, const std::string& name) {
  successful(cluster.run("right", folder.path(),
                         "for pid in $(ip netns pids $(ip netns identify)); do "
                         "read name </proc/$pid/comm && [ $name = " +
                             name + " ] && kill -KILL $pid; done; true"));
}

// The report of a run after `disturb` has disturbed its right node.
std::string report_of(const std::string& options,
                      const std::function<void(SlurmCluster&, const JobFolder&)>& disturb) {
  SlurmCluster cluster;
  const JobFolder folder;
  const EndlessRun endless{.timeout_seconds = 5};
  Background run(folder.path(), cluster.on("left", folder.path(), srun(options, endless)));
  wait_for_step(cluster, folder, 10);
  disturb(cluster, folder);
  // stderr arrives through srun, a little later.
  const bool reported = comes_true(
      [&] {
        return !read_bytes(folder / "run/failures.log").empty() &&
               run.output().find("runexp: ") != std::string::npos;
      },
      60s);
  INFO(run.output() << cluster.logs());
  REQUIRE(reported);
  const std::string report = read_bytes(folder / "run/failures.log");
  for (const std::string& text : {report, run.output()})
    REQUIRE_THAT(text, Contains("process 1 (host right)") || Contains("(process 1, host right)"));
  return report;
}

TEST_CASE("a process that is killed under srun is named by the other", "[slurm][full]") {
  if (const std::string reason = why_no_slurm(); !reason.empty()) return skip_test(reason);
  const auto disturb = [](SlurmCluster& cluster, const JobFolder& folder) {
    kill_on_right(cluster, folder, "runexp");
  };
  REQUIRE_THAT(report_of("--kill-on-bad-exit=1", disturb), Contains("SIGTERM came while"));
  REQUIRE_THAT(report_of("--kill-on-bad-exit=0", disturb), Contains("5 s"));
}

TEST_CASE("a killed node is named, and so is a disconnected one", "[slurm][full]") {
  if (const std::string reason = why_no_slurm(); !reason.empty()) return skip_test(reason);
  REQUIRE_THAT(report_of("",
                         [](SlurmCluster& cluster, const JobFolder& folder) {
                           for (const char* name : {"slurmd", "slurmstepd", "runexp"})
                             kill_on_right(cluster, folder, name);
                         }),
               Contains("5 s"));
  REQUIRE_THAT(
      report_of("",
                [](SlurmCluster& cluster, const JobFolder& folder) {
                  REQUIRE(cluster.run("right", folder.path(), "ip link set cable down").exit_code ==
                          0);
                }),
      Contains("5 s"));
}

}  // namespace
}  // namespace tessera
