// SPDX-License-Identifier: Apache-2.0
// --mode=sweep: makes trials from the command line and runs each as a process of this program
// (tasks/sweep).
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/sweep/runner.h"
#include "tasks/sweep/space_text.h"
#include "tasks/sweep/trials.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Checks all trials, then runs those that are not done.
struct SweepCommand {
  static constexpr CommandInfo kInfo{
      .mode = "sweep", .summary = "train it once for each of several settings (docs/sweeps.md)"};
  ExperimentFlags experiment;
  DeviceFlags devices;
  fs::path job_log_dir;
  ResumeFlags resume;
  DryRunFlags dry;
  std::vector<std::string> sweep;
  int64_t sweep_processes = 1;
  std::optional<int64_t> sweep_trials;
  std::optional<int64_t> sweep_seed;
  std::string sweep_metric;
  std::optional<SweepGoal> sweep_goal;
  bool retry_failed = false;
  FIELDS(
      experiment, devices,
      About(job_log_dir, "the folder of the runs (default: runs/FAMILY.Name.sweep)",
            {.unit = "DIR"}),
      resume, dry,
      About(sweep,
            "vary a knob or a field, in place of the experiment's search(): 1e-3,3e-4 or 1..3 or "
            "uniform(0,1), log_uniform(1e-4,1e-2), uniform_integer(2,8); may be repeated; or "
            "--sweep=FILE, a sweep.toml",
            {.unit = "PATH=VALUES"}),
      About(sweep_processes, "trials that run at the same time, which share the threads",
            {.min = 1, .max = 256}),
      About(sweep_trials,
            "draw so many trials; without it, a grid: every combination of the values", {.min = 1}),
      About(sweep_seed, "of the draws (default: 0)", {.min = 0}),
      About(sweep_metric,
            "a metric of the runs by which trials are compared (default: the loss of evaluation, "
            "or else of training)",
            {.unit = "NAME"}),
      About(sweep_goal, "which value of it is the best"),
      About(retry_failed, "resume the trials that failed, too"))

  void check() const {
    experiment.check();
    devices.check();
  }
  CommandResult run(const CommandContext& context) const;
};

// Reads the space from --sweep, or else from the experiment's search(); other flags change parts.
Sweep space_of(const SweepCommand& flags) {
  Sweep sweep;
  if (flags.sweep.empty()) {
    const ConfiguredExperiment configured = configured_by(flags.experiment);
    const Experiment& experiment = *configured.experiment;
    sweep = calling(experiment, "search()", [&] { return experiment.search(); });
    if (sweep.axes.empty())
      fail(
          "{} has no search() that says what to vary; say it with --sweep, such as "
          "--sweep=task.learner.optimizer_tpl.learning_rate=1e-3,3e-4",
          configured.entry.name);
  } else {
    sweep = parse_sweep(flags.sweep);
  }
  if (flags.sweep_trials) sweep.num_trials = *flags.sweep_trials;
  if (flags.sweep_seed) sweep.seed = *flags.sweep_seed;
  if (!flags.sweep_metric.empty()) sweep.metric = flags.sweep_metric;
  if (flags.sweep_goal) sweep.goal = flags.sweep_goal;
  return sweep;
}

// The command of each trial, by its place among those that run at the same time.
class Commands {
 public:
  Commands(const SweepCommand& flags, fs::path directory)
      : flags_(flags), directory_(std::move(directory)) {
    const int64_t threads = flags.devices.kind.threads.value_or(usable_processors());
    common_.flags = {.experiment = flags.experiment, .devices = flags.devices};
    common_.flags.experiment.set = flags.experiment.sets();
    common_.flags.experiment.set_file.clear();
    common_.flags.devices.kind.threads = std::max<int64_t>(1, threads / flags.sweep_processes);
    common_.resume = flags.resume;
    common_.resume.restart = false;
    for (int64_t place = 0; place < flags.sweep_processes; ++place) environment(place);
  }

  std::vector<std::string> of(const SweepTrial& trial, int64_t place) const {
    std::vector<std::string> words = environment(place);
    words.push_back(fs::canonical("/proc/self/exe").string());
    for (std::string& word : arguments(trial)) words.push_back(std::move(word));
    return words;
  }

  // The command as a user types it.
  std::string text(const SweepTrial& trial) const {
    return "./runexp " + shell_command(arguments(trial));
  }

 private:
  std::vector<std::string> arguments(const SweepTrial& trial) const {
    TrainFlags train = common_;
    train.flags.directory.job_log_dir = directory_ / trial.directory();
    for (std::string& set : trial.sets()) train.flags.experiment.set.push_back(std::move(set));
    return to_arguments(train);
  }

  std::vector<std::string> environment(int64_t place) const {
    if (flags_.devices.kind.kind() != "cuda" || flags_.sweep_processes == 1) return {};
    const char* visible = std::getenv(kVisibleGpus);
    return {fmt::format(
        "{}={}", kVisibleGpus,
        gpus_of_place(place, flags_.devices.count(), visible == nullptr ? "" : visible))};
  }

  const SweepCommand& flags_;
  fs::path directory_;
  TrainFlags common_;
};

// Calls `action`, whose Errors then name the trial.
template <typename Action>
auto for_trial(const SweepTrial& trial, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    fail("trial {} ({}): {}", trial.number, trial.text(), error.what());
  }
}

// The trials as they are now, by the files of their runs.
class Preparation {
 public:
  Preparation(const SweepCommand& flags, fs::path directory, const Sweep& sweep,
              const DeviceKind& kind, ProcessGroup& processes)
      : flags_(flags),
        directory_(std::move(directory)),
        sweep_(sweep),
        trials_(trials_of(sweep_)),
        kind_(kind),
        processes_(processes) {}

  SweepRecord record() const {
    // Given back before trials start, which need the memory of a GPU.
    const auto owned = kind_.make_devices(1, flags_.devices.kind.thread_count(), 0);
    const std::vector<Device*> devices = {owned.front().get()};
    SweepRecord record;
    std::vector<std::string> logged;
    refuse_further_trials();
    for (const SweepTrial& trial : trials_) {
      TrialRecord& read = record.trials.emplace_back(TrialRecord{.trial = trial});
      for_trial(trial, [&] {
        const ConfiguredExperiment checked = configured_by(flags_.experiment, trial.sets());
        const RunSetting setting = setting_of(trial, checked);
        const RunContext context{checked.config, setting, devices, processes_};
        check_trial(context, &read);
        if (trial.number > 1) return;
        record.experiment = checked.entry.name;
        logged = logged_metrics(context);
      });
    }
    record.metric = choose_metric(sweep_, logged);
    if (flags_.resume.restart) return record;  // What is in the directory is set aside.
    for (TrialRecord& trial : record.trials)
      trial.score = score_of(directory_ / trial.trial.directory(), record.metric);
    return record;
  }

 private:
  RunSetting setting_of(const SweepTrial& trial, const ConfiguredExperiment& configured) const {
    // --smoke uses as many devices as each mesh needs.
    const bool any = flags_.experiment.smoke && !flags_.devices.devices;
    return {.experiment = configured.entry.name,
            .site = configured.entry.site,
            .job_log_dir = directory_ / trial.directory(),
            .devices = any ? 0 : flags_.devices.count(),
            .restart = flags_.resume.restart,
            .allow_config_change = flags_.resume.allow_config_change,
            .allow_code_change = flags_.resume.allow_code_change,
            .dry_run = flags_.dry.dry_run,
            .overrides = configured.overrides};
  }

  // A directory with more trials is that of another sweep. Those of another configuration are
  // refused by check_trial(), as that of any run is.
  void refuse_further_trials() const {
    const SweepTrial next{.number = std::ssize(trials_) + 1};
    if (flags_.resume.restart || !is_run(directory_ / next.directory())) return;
    fail(
        "{} has {}, but the sweep has only {} trials now; give the same space to go on, another "
        "--job_log_dir for another sweep, or --restart to set this one aside",
        directory_.string(), next.directory(), trials_.size());
  }

  const SweepCommand& flags_;
  fs::path directory_;
  Sweep sweep_;
  std::vector<SweepTrial> trials_;
  const DeviceKind& kind_;
  ProcessGroup& processes_;
};

std::string introduction(const SweepRecord& record, int64_t processes, const fs::path& directory) {
  return fmt::format(
      "sweep of {} in {}\n{} trials, {} at a time, {} done; {} {} is the best", record.experiment,
      directory.string(), record.trials.size(), processes, record.count(TrialState::kDone),
      record.metric.goal == SweepGoal::kMin ? "the lowest" : "the highest", record.metric.name);
}

CommandResult SweepCommand::run(const CommandContext& context) const {
  ProcessGroup& processes = context.processes;
  const DeviceKind& kind = find_device(devices.kind.kind(), experiment.plugins.folders());
  if (processes.size() > 1)
    fail("--mode=sweep starts its own processes: start it once, without mpirun or srun");
  const Sweep space = space_of(*this);
  const SweepTrial trial = trials_of(space).front();
  const ConfiguredExperiment first =
      for_trial(trial, [&] { return configured_by(experiment, trial.sets()); });
  if (const auto message =
          missing_data_message(first, {experiment, devices, {job_log_dir}, {}}, devices.count())) {
    fmt::print(context.errors, "runexp: {}", *message);  // Several lines: commands to copy.
    return {kBadUsage};
  }
  const fs::path directory =
      job_log_dir.empty()
          ? fs::path("runs") / (first.entry.name + (experiment.smoke ? ".smoke" : "") + ".sweep")
          : job_log_dir;
  const Commands commands(*this, directory);
  SweepRecord record = Preparation(*this, directory, space, kind, processes).record();
  const std::string begin = introduction(record, sweep_processes, directory);
  if (dry.dry_run) {
    fmt::print(context.out, "{}\n\n{}\ndry run: nothing was started; the command of trial 1:\n{}\n",
               begin, trial_table(record), commands.text(record.trials.front().trial));
    return check_printed();
  }
  const std::unique_ptr<RunLock> lock =
      lock_run({.job_log_dir = directory, .restart = resume.restart}, processes);
  Console console(Console::detect());
  console.info(begin);
  return check_printed({run_trials(
      std::move(record),
      {.directory = directory,
       .processes = sweep_processes,
       .retries_failed = retry_failed,
       .command = [&](const SweepTrial& each, int64_t place) { return commands.of(each, place); }},
      console)});
}

}  // namespace

std::unique_ptr<Command> sweep_command() { return command_of<SweepCommand>(); }

}  // namespace tessera
