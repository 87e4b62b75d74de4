// SPDX-License-Identifier: Apache-2.0
// runexp --mode=sweep with its real child processes: complete, stopped, killed and resumed, and
// refused.
#include <csignal>
#include <iterator>
#include <memory>

#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A folder with a sweep of a tiny model.
class SweepFolder {
 public:
  SweepFolder() {
    write_small_text(folder_.path());
    // Without graphviz in PATH: trials would wait for it to draw their graphs.
    fs::create_directory(folder_ / "bin");
    for (const char* program : {"env", "setpriv"})
      fs::create_symlink(fs::path("/usr/bin") / program, folder_ / "bin" / program);
  }

  Outcome run(const std::string& flags, int64_t steps = 3) const {
    return shell(folder_.path(), command(flags, steps));
  }
  std::unique_ptr<Background> start(const std::string& flags, int64_t steps) const {
    return std::make_unique<Background>(folder_.path(), command(flags, steps));
  }
  const fs::path& folder() const { return folder_.path(); }
  fs::path directory() const { return folder_ / "run"; }
  // By the table of a dry run, which reads the files of the trials and changes nothing.
  std::string table(const std::string& flags, int64_t steps = 3) const {
    return run(flags + " --dry_run", steps).out;
  }

  // Waits until the trial has logged more steps than now, and returns its process, which its lock
  // file names.
  pid_t process_of(const std::string& trial) const {
    const fs::path run = directory() / trial;
    const size_t now = losses_of(run).size();
    REQUIRE(comes_true([&] { return losses_of(run).size() > now + 2; }));
    const std::string who = read_bytes(run / "lock");  // "process 12 on host"
    return std::stoi(who.substr(who.find(' ') + 1));
  }

 private:
  std::string command(const std::string& flags, int64_t steps) const {
    return fmt::format("/usr/bin/env PATH='{}' {} --mode=sweep {}", (folder_ / "bin").string(),
                       tiny_command(steps), flags);
  }
  TemporaryDirectory folder_;
};

constexpr const char* kTwoRates = "--sweep='learning_rate=1e-3,3e-4' ";
constexpr int64_t kEndless = 1'000'000;

TEST_CASE("a sweep trains all trials, and a second call has nothing to do") {
  const SweepFolder sweep;
  const std::string flags = std::string(kTwoRates) + "--sweep_processes=2";
  const Outcome first = sweep.run(flags);
  INFO(first.out << first.errors);
  REQUIRE(first.exit_code == 0);
  REQUIRE_THAT(first.out, Catch::Contains("2 of 2 trials are done") &&
                              Catch::Contains("trial 2 starts: learning_rate=3e-4") &&
                              Catch::Contains(" is done (2 of 2) in 0:0"));
  const double loss = numbers_of(sweep.directory() / "trial_0002", "eval/validation/loss").back();
  REQUIRE_THAT(first.out, Catch::Contains(fmt::format("eval/validation/loss {:.6g}\n", loss)));
  REQUIRE_THAT(read_bytes(sweep.directory() / "trial_0002" / "hparams.toml"),
               Catch::Contains("learning_rate = 0.0003"));
  REQUIRE_THAT(first.out, Catch::Contains("their page: ./runexp --compare=run\n"));
  const Outcome page =
      shell(sweep.folder(), fmt::format("'{}/bin/runexp' --compare=run", TESSERA_BINARY_DIR));
  REQUIRE(page.exit_code == 0);
  REQUIRE_THAT(page.out, Catch::Contains("trial_0002") && Catch::Contains("learning_rate"));
  const Outcome second = sweep.run(flags);
  REQUIRE(second.exit_code == 0);
  REQUIRE_THAT(second.out, Catch::Contains("2 done") && !Catch::Contains("starts"));
  REQUIRE_THAT(second.out, Catch::Contains(fmt::format("{:.6g}", loss)));
  // Nothing but the trials and the lock is in the folder.
  REQUIRE(std::distance(fs::directory_iterator(sweep.directory()), {}) == 3);
}

TEST_CASE("a sweep goes on with further steps and further random trials") {
  const SweepFolder sweep;
  const std::string space = "--sweep='learning_rate=log_uniform(1e-4,1e-2)' --sweep_trials=";
  const std::string first = sweep.run(space + "1").out;
  const size_t begin = first.find("trial 1 starts: ") + 16;
  const std::string rate = first.substr(begin, first.find('\n', begin) - begin);
  const Outcome more = sweep.run(space + "2", 5);
  INFO(more.out << more.errors);
  REQUIRE(more.exit_code == 0);
  REQUIRE_THAT(more.out, Catch::Contains("trial 1 resumes: " + rate + "\n"));
  REQUIRE(losses_of(sweep.directory() / "trial_0001").size() == 5);
  REQUIRE(losses_of(sweep.directory() / "trial_0002").size() == 5);
  const Outcome other = sweep.run(space + "2 --sweep_seed=5", 5);
  REQUIRE(other.exit_code == 2);
  REQUIRE_THAT(other.errors, Catch::StartsWith("runexp: trial 1 (learning_rate=") &&
                                 Catch::Contains("was started with a different configuration"));
  const Outcome fewer = sweep.run(space + "1", 5);
  REQUIRE(fewer.exit_code == 2);
  REQUIRE_THAT(fewer.errors,
               Catch::Contains("run has trial_0002, but the sweep has only 1 trials now"));
}

TEST_CASE("a stopped sweep saves its trials and resumes them") {
  const SweepFolder sweep;
  const auto first = sweep.start(kTwoRates, kEndless);
  sweep.process_of("trial_0001");
  ::kill(first->pid(), SIGINT);
  REQUIRE(first->wait(std::chrono::seconds(60)) == 0);
  REQUIRE_THAT(first->output(),
               Catch::Contains("Ctrl-C: waiting until 1 running trial has saved") &&
                   Catch::Contains("run the same command to go on"));
  REQUIRE_THAT(sweep.table(kTwoRates, kEndless),
               Catch::Contains("1e-3  interrupted") && Catch::Contains("3e-4      waiting"));
  const size_t before = losses_of(sweep.directory() / "trial_0001").size();
  const auto second = sweep.start(kTwoRates, kEndless);
  sweep.process_of("trial_0001");
  ::kill(second->pid(), SIGTERM);
  REQUIRE(second->wait(std::chrono::seconds(60)) == 0);
  REQUIRE_THAT(second->output(), Catch::Contains("trial 1 resumes"));
  REQUIRE(losses_of(sweep.directory() / "trial_0001").size() > before);
}

TEST_CASE("a killed trial is a failed one, which the next call resumes") {
  const SweepFolder sweep;
  const std::string one = "--sweep='learning_rate=1e-3' ";
  const auto first = sweep.start(one, kEndless);
  ::kill(sweep.process_of("trial_0001"), SIGKILL);
  REQUIRE(first->wait(std::chrono::seconds(60)) == 1);
  REQUIRE_THAT(first->output(), Catch::Contains("trial 1 was killed by SIGKILL:\n  ") &&
                                    Catch::Contains("--retry_failed"));
  const auto second = sweep.start(one, kEndless);
  sweep.process_of("trial_0001");
  ::kill(second->pid(), SIGTERM);
  REQUIRE(second->wait(std::chrono::seconds(60)) == 0);
  REQUIRE_THAT(second->output(), Catch::Contains("trial 1 resumes"));
}

TEST_CASE("a trial whose log ends with a failure is tried again only by --retry_failed") {
  const SweepFolder sweep;
  const std::string two =
      "--sweep='learning_rate=1e-3,1e30' --set task.learner.max_skipped_in_a_row=1 ";
  const Outcome first = sweep.run(two, 20);
  INFO(first.out << first.errors);
  REQUIRE(first.exit_code == 1);
  REQUIRE_THAT(first.out, Catch::Contains("trial 2 ended with exit code 1:\n  ") &&
                              Catch::Contains("--retry_failed"));
  const Outcome second = sweep.run(two, 20);
  REQUIRE(second.exit_code == 1);
  REQUIRE_THAT(second.out, !Catch::Contains("trial 2 resumes") && !Catch::Contains("starts") &&
                               Catch::Contains("\ntrial 2 failed at step "));
  REQUIRE_THAT(sweep.run(two + "--retry_failed", 20).out, Catch::Contains("trial 2 resumes"));
}

TEST_CASE("trials of a killed sweep save and end, and the next call resumes them") {
  const SweepFolder sweep;
  const std::string one = "--sweep='learning_rate=1e-3' ";
  const auto first = sweep.start(one, kEndless);
  const pid_t child = sweep.process_of("trial_0001");
  ::kill(first->pid(), SIGKILL);
  REQUIRE(first->wait(std::chrono::seconds(60)) == -SIGKILL);
  const auto second = sweep.start(one, kEndless);
  sweep.process_of("trial_0001");
  REQUIRE(comes_true([&] { return ::kill(child, 0) != 0; }));
  ::kill(second->pid(), SIGTERM);
  REQUIRE(second->wait(std::chrono::seconds(60)) == 0);
  REQUIRE_THAT(second->output(), Catch::Contains("trial 1 resumes"));
  REQUIRE_THAT(read_bytes(sweep.directory() / "trial_0001" / "output.txt"),
               Catch::Contains("SIGTERM: saved step"));
  // Nothing was lost: the log has each step once, in order.
  std::vector<std::string> steps = values_of(sweep.directory() / "trial_0001", "grad_norm");
  REQUIRE(steps.size() == losses_of(sweep.directory() / "trial_0001").size());
}

TEST_CASE("every trial is checked before the first one starts") {
  const SweepFolder sweep;
  const auto error = [&](const std::string& flags) {
    const Outcome outcome = sweep.run(flags);
    INFO(outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(!fs::exists(sweep.directory()));
    return outcome.errors;
  };
  REQUIRE_THAT(error("--sweep='num_layer=1,2'"),
               Catch::StartsWith("runexp: trial 1 (num_layer=1): --set num_layer=1: "
                                 "quickstart.CharLm has no knob or field 'num_layer'; did you "
                                 "mean 'num_layers'?"));
  REQUIRE_THAT(error("--sweep='num_heads=1,2,3'"),
               Catch::Contains("trial 3 (num_heads=3): quickstart.CharLm: num_heads=3 does not "
                               "divide model_dims=16"));
  REQUIRE_THAT(error("--sweep='ici_mesh_shape=[1,1,1],[1,2,1]'"),
               Catch::Contains("trial 2 (ici_mesh_shape=[1,2,1]): "));
  REQUIRE_THAT(error("--sweep='task.train.remat_policy=save_nothing,save_nothin'"),
               Catch::Contains("trial 2 (task.train.remat_policy=save_nothin): "));
  REQUIRE_THAT(error(std::string(kTwoRates) + "--sweep_metric=eval/validation/los"),
               Catch::Contains("did you mean 'eval/validation/loss'?"));
  REQUIRE_THAT(error("--sweep='learning_rate=log_uniform(1e-4,1e-2)'"),
               Catch::Contains("--sweep_trials=20"));
  REQUIRE_THAT(error(std::string(kTwoRates) + "--profile=1:2"),
               Catch::Contains("--profile needs --mode=train"));
}

TEST_CASE("a dry run prints the trials of the experiment's search() and writes nothing") {
  const SweepFolder sweep;
  const Outcome outcome = sweep.run("--dry_run");
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_THAT(outcome.out, Catch::Contains("6 trials, 1 at a time, 0 done") &&
                                Catch::Contains("    2         0.0005           0.1  waiting") &&
                                Catch::Contains("--set learning_rate=0.0005"));
  REQUIRE(!fs::exists(sweep.directory()));
}

TEST_CASE("a sweep's directory has one sweep at a time, and --restart sets it aside") {
  const SweepFolder sweep;
  const std::string one = "--sweep='learning_rate=1e-3' ";
  const auto first = sweep.start(one, kEndless);
  sweep.process_of("trial_0001");
  const Outcome second = sweep.run(one, kEndless);
  REQUIRE(second.exit_code == 2);
  REQUIRE_THAT(second.errors, Catch::Contains("is in use by process"));
  ::kill(first->pid(), SIGTERM);
  REQUIRE(first->wait(std::chrono::seconds(60)) == 0);
  const Outcome changed = sweep.run(one + "--set seq_len=8");
  REQUIRE(changed.exit_code == 2);
  REQUIRE_THAT(changed.errors, Catch::Contains("trial 1 (learning_rate=1e-3): ") &&
                                   Catch::Contains("was started with a different configuration"));
  const Outcome third = sweep.run(one + "--set seq_len=8 --restart");
  INFO(third.out << third.errors);
  REQUIRE(third.exit_code == 0);
  REQUIRE(fs::exists(sweep.directory() / "before_restart_1" / "trial_0001" / "metrics.jsonl"));
}

}  // namespace
}  // namespace tessera
