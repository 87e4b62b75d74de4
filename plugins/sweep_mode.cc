// SPDX-License-Identifier: Apache-2.0
#include "plugins/sweep_mode.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/base/shell_command.h"
#include "tasks/run_directory/find_runs.h"
#include "tasks/run_directory/run_directory.h"
#include "tasks/sweep/runner.h"
#include "tasks/sweep/space_text.h"
#include "tasks/sweep/table.h"
#include "tasks/sweep/trial_check.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// Of the command line, or else the experiment's own; flags change parts of it.
Sweep space_of(const SweepMode& mode) {
  const SweepFlags& flags = mode.line.sweep;
  Sweep sweep;
  if (flags.space.empty()) {
    const ConfiguredExperiment configured = mode.configured({});
    const Experiment& experiment = *configured.experiment;
    sweep = calling(experiment, "search()", [&] { return experiment.search(); });
    if (sweep.axes.empty())
      fail(
          "{} has no search() that says what to vary; say it with --sweep, such as "
          "--sweep=task.learner.optimizer_tpl.learning_rate=1e-3,3e-4",
          configured.entry.name);
  } else {
    sweep = parse_sweep(flags.space);
  }
  if (flags.trials) sweep.num_trials = *flags.trials;
  if (flags.seed) sweep.seed = *flags.seed;
  if (!flags.metric.empty()) sweep.metric = flags.metric;
  if (flags.goal) sweep.goal = flags.goal;
  return sweep;
}

// What all trials have in common, and each by its place among those that run at the same time.
class Commands {
 public:
  Commands(const SweepMode& mode, fs::path directory)
      : mode_(mode), line_(mode.line), directory_(std::move(directory)) {
    const int threads = line_.threads > 0 ? line_.threads : usable_processors();
    threads_ = std::max<int64_t>(1, threads / line_.sweep.processes);
    for (int64_t place = 0; place < line_.sweep.processes; ++place) environment(place);
  }

  std::vector<std::string> of(const SweepTrial& trial, int64_t place) const {
    std::vector<std::string> words = environment(place);
    words.push_back(fs::canonical("/proc/self/exe").string());
    for (std::string& word : arguments(trial)) words.push_back(std::move(word));
    return words;
  }

  // As a user types it.
  std::string text(const SweepTrial& trial) const {
    return "./runexp " + shell_command(arguments(trial));
  }

 private:
  std::vector<std::string> arguments(const SweepTrial& trial) const {
    std::vector<std::string> words;
    words.push_back(line_.config.empty() ? "--exp=" + line_.experiment
                                         : "--config=" + line_.config.string());
    if (line_.smoke) words.emplace_back("--smoke");
    if (line_.has_devices) words.push_back(fmt::format("--devices={}", line_.run.devices));
    words.push_back(fmt::format("--threads={}", threads_));
    if (line_.device != CommandLine{}.device) words.push_back("--device=" + line_.device);
    for (const fs::path& folder : line_.plugin_path)
      words.push_back("--plugin_path=" + folder.string());
    if (line_.run.allow_config_change) words.emplace_back("--allow_config_change");
    if (line_.run.allow_code_change) words.emplace_back("--allow_code_change");
    words.push_back("--job_log_dir=" + (directory_ / trial.directory()).string());
    for (const std::vector<std::string>& sets : {line_.sets, trial.sets()})
      for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return words;
  }

  std::vector<std::string> environment(int64_t place) const {
    if (line_.device != "cuda" || line_.sweep.processes == 1) return {};
    const char* visible = std::getenv(kVisibleGpus);
    return {
        fmt::format("{}={}", kVisibleGpus,
                    gpus_of_place(place, line_.run.devices, visible == nullptr ? "" : visible))};
  }

  const SweepMode& mode_;
  const CommandLine& line_;
  fs::path directory_;
  int64_t threads_ = 1;
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
  Preparation(const SweepMode& mode, fs::path directory, const Sweep& sweep)
      : mode_(mode), directory_(std::move(directory)), sweep_(sweep), trials_(trials_of(sweep_)) {}

  SweepRecord record() const {
    // Given back before trials start, which need the memory of a GPU.
    const auto owned = mode_.kind.make_devices(1, mode_.line.threads, 0);
    const std::vector<Device*> devices = {owned.front().get()};
    SweepRecord record;
    std::vector<std::string> logged;
    refuse_further_trials();
    for (const SweepTrial& trial : trials_) {
      TrialRecord& read = record.trials.emplace_back(TrialRecord{.trial = trial});
      for_trial(trial, [&] {
        const ConfiguredExperiment checked = mode_.configured(trial.sets());
        const RunOptions options = this->options(trial, checked);
        check_trial(checked.config, options, devices, mode_.processes, &read);
        if (trial.number > 1) return;
        record.experiment = checked.entry.name;
        logged = logged_metrics(checked.config, options, devices, mode_.processes);
      });
    }
    record.metric = choose_metric(sweep_, logged);
    if (mode_.line.run.restart) return record;  // What is in the directory is set aside.
    for (TrialRecord& trial : record.trials)
      trial.score = score_of(directory_ / trial.trial.directory(), record.metric);
    return record;
  }

 private:
  RunOptions options(const SweepTrial& trial, const ConfiguredExperiment& configured) const {
    RunOptions options = mode_.line.run;
    // --smoke uses as many devices as each mesh needs.
    if (mode_.line.smoke && !mode_.line.has_devices) options.devices = 0;
    options.job_log_dir = directory_ / trial.directory();
    options.experiment = configured.entry.name;
    options.site = configured.entry.site;
    options.overrides = configured.overrides;
    return options;
  }

  // A directory with more trials is that of another sweep. Those of another configuration are
  // refused by check_trial(), as that of any run is.
  void refuse_further_trials() const {
    const SweepTrial next{.number = std::ssize(trials_) + 1};
    if (mode_.line.run.restart || !is_run(directory_ / next.directory())) return;
    fail(
        "{} has {}, but the sweep has only {} trials now; give the same space to go on, another "
        "--job_log_dir for another sweep, or --restart to set this one aside",
        directory_.string(), next.directory(), trials_.size());
  }

  const SweepMode& mode_;
  fs::path directory_;
  Sweep sweep_;
  std::vector<SweepTrial> trials_;
};

fs::path directory_of(const CommandLine& line, const std::string& experiment) {
  if (!line.run.job_log_dir.empty()) return line.run.job_log_dir;
  return fs::path("runs") / (experiment + (line.smoke ? ".smoke" : "") + ".sweep");
}

std::string introduction(const SweepRecord& record, const CommandLine& line,
                         const fs::path& directory) {
  return fmt::format("sweep of {} in {}\n{} trials, {} at a time, {} done; {} {} is the best",
                     record.experiment, directory.string(), record.trials.size(),
                     line.sweep.processes, record.count(TrialState::kDone),
                     record.metric.goal == SweepGoal::kMin ? "the lowest" : "the highest",
                     record.metric.name);
}

}  // namespace

std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible) {
  std::vector<std::string> names;
  std::istringstream list(visible);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  std::vector<std::string> chosen;
  for (int64_t gpu = place * devices; gpu < (place + 1) * devices; ++gpu) {
    if (!visible.empty() && gpu >= std::ssize(names))
      fail(
          "{}={} has {} GPUs, but the trials that run at the same time use {} or more; give a "
          "lower --sweep_processes",
          kVisibleGpus, visible, names.size(), gpu + 1);
    chosen.push_back(visible.empty() ? std::to_string(gpu) : names[static_cast<size_t>(gpu)]);
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

int run_sweep(const SweepMode& mode) {
  constexpr int kBadUsage = 2;
  if (mode.processes.size() > 1)
    fail("--mode=sweep starts its own processes: start it once, without mpirun or srun");
  const CommandLine& line = mode.line;
  const Sweep sweep = space_of(mode);
  const SweepTrial trial = trials_of(sweep).front();
  const ConfiguredExperiment first =
      for_trial(trial, [&] { return mode.configured(trial.sets()); });
  if (const auto message = mode.missing_data(first)) {
    fmt::print(mode.errors, "runexp: {}", *message);  // Several lines: commands to copy.
    return kBadUsage;
  }
  const fs::path directory = directory_of(line, first.entry.name);
  const Preparation preparation(mode, directory, sweep);
  const Commands commands(mode, directory);
  SweepRecord record = preparation.record();
  if (line.run.dry_run) {
    fmt::print(mode.out, "{}\n\n{}\ndry run: nothing was started; the command of trial 1:\n{}\n",
               introduction(record, line, directory), trial_table(record),
               commands.text(record.trials.front().trial));
    return 0;
  }
  RunOptions lock_options = line.run;
  lock_options.job_log_dir = directory;
  const std::unique_ptr<RunLock> lock = lock_run(lock_options, mode.processes);
  Console console(Console::detect());
  console.info(introduction(record, line, directory));
  return run_trials(std::move(record),
                    {.directory = directory,
                     .processes = line.sweep.processes,
                     .retries_failed = line.sweep.retries_failed,
                     .command = [&](const SweepTrial& trial,
                                    int64_t place) { return commands.of(trial, place); }},
                    console);
}

}  // namespace tessera
