// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/region.h"
#include "core/base/shell_command.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/calibrate_mode.h"
#include "plugins/code_stamp.h"
#include "plugins/command_line.h"
#include "plugins/compare_ranks.h"
#include "plugins/configure.h"
#include "plugins/launch.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/new_project.h"
#include "plugins/replay_setting.h"
#include "plugins/search_mode.h"
#include "plugins/show_runs.h"
#include "plugins/sweep_mode.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/logging/run_log.h"
#include "tasks/modes/make_run.h"
#include "tasks/modes/selfcheck.h"
#include "tasks/plan/prediction.h"
#include "tasks/replay/replay.h"
#include "tasks/run_directory/run_config.h"
#include "tasks/run_directory/run_guard.h"
#include "tasks/shutdown/stop_signal.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

// How long a failed process waits until the others know, before it ends them.
constexpr std::chrono::seconds kFailurePatience{2};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int list(const CommandLine& line, std::ostream& out, std::ostream& errors) {
  const std::vector<std::string> problems =
      load_plugins(find_plugins(plugin_path(line.plugin_path)));
  const std::vector<ExperimentEntry> entries = registered_experiments();
  size_t width = 0;
  for (const ExperimentEntry& entry : entries) width = std::max(width, entry.name.size());
  for (const ExperimentEntry& entry : entries)
    fmt::print(out, "{:<{}}  {}\n", entry.name, width,
               entry.summary.empty() ? entry.plugin : entry.summary);
  if (entries.empty()) fmt::print(out, "no experiments; --plugin_path=DIR adds places to look\n");
  for (const std::string& problem : problems)
    fmt::print(errors, "runexp: not loaded: {}\n", one_line(problem));
  for (const std::string& clash : experiment_clashes()) fmt::print(errors, "runexp: {}\n", clash);
  return kDone;
}

int describe_experiment(const ConfiguredExperiment& configured, std::ostream& out) {
  fmt::print(out, "{}\n\n", configured.entry.name);
  if (configured.config_file.empty()) fmt::print(out, "Knobs\n{}\n", describe(configured.knobs));
  fmt::print(out, "Configuration\n{}", describe(configured.config_tree()));
  if (const std::string note = export_note(configured.config, NoteLength::kWhole); !note.empty())
    fmt::print(out, "\n{}\n", note);
  return kDone;
}

// Another experiment, or the configuration in a run's directory.
Tree other_tree(const std::string& other, const CommandLine& line) {
  filesystem::path file = other;
  if (filesystem::is_directory(file)) {
    file /= "hparams.toml";
    if (!filesystem::exists(file)) fail("--diff={}: the folder has no hparams.toml", other);
  }
  if (filesystem::is_regular_file(file)) {
    return to_tree(with_all_evals(parse_config(read_file(file), file.string())));
  }
  const bool is_path = file.has_parent_path() || file.extension() == ".toml";
  if (is_path || filesystem::exists(file))
    fail("--diff={}: {}; expected a run's directory, its hparams.toml, or an experiment", other,
         filesystem::exists(file) ? "is not a file or a directory" : "no such file or directory");
  const ExperimentEntry entry = find_experiment(other, plugin_path(line.plugin_path));
  return to_tree(configure(entry, {}).config);
}

int diff_experiments(const ConfiguredExperiment& configured, const CommandLine& line,
                     std::ostream& out) {
  const std::vector<std::string> lines =
      diff(configured.config_tree(), other_tree(line.diff_with, line));
  for (const std::string& difference : lines) fmt::print(out, "{}\n", difference);
  if (lines.empty())
    fmt::print(out, "{} and {} have the same configuration\n", configured.entry.name,
               line.diff_with);
  return kDone;
}

bool reads_data(RunMode mode) {
  return mode == RunMode::kTrain || mode == RunMode::kEval || mode == RunMode::kDecode;
}

bool mesh_fits(const MeshConfig& mesh, int64_t devices) {
  if (mesh.ici_mesh_shape.empty()) return true;  // It uses all devices.
  return element_count(mesh.ici_mesh_shape) * element_count(mesh.dcn_mesh_shape) == devices;
}

// The knob sets the shape of the default axes; for others, and for a configuration from a file, the
// field of the configuration.
std::string fitting_shape(const ConfiguredExperiment& configured, int64_t devices) {
  const std::vector<std::string>& axes = configured.config.mesh.axis_names;
  const bool is_knob = configured.config_file.empty() && axes == MeshConfig{}.axis_names;
  return fmt::format("{}ici_mesh_shape=[{}]", is_knob ? "" : "mesh.",
                     fmt::join(shape_along_data(axes, devices), ","));
}

bool sets_mesh_shape(std::string_view set) {
  constexpr std::string_view kPart = "mesh.";
  if (set.starts_with(kPart)) set.remove_prefix(kPart.size());
  return set.starts_with("ici_mesh_shape=") || set.starts_with("dcn_mesh_shape=");
}

std::string run_command(const ConfiguredExperiment& configured, const CommandLine& line,
                        int64_t devices) {
  const bool fits = mesh_fits(configured.config.mesh, devices);
  std::string command = line.config.empty()
                            ? "./runexp --exp=" + shell_quoted(configured.entry.name)
                            : "./runexp --config=" + shell_quoted(line.config.string());
  if (line.smoke) command += " --smoke";
  if (line.run.devices > 1 && (line.has_devices || !line.smoke))
    command += fmt::format(" --devices={}", line.run.devices);
  if (!line.run.job_log_dir.empty())
    command += " --job_log_dir=" + shell_quoted(line.run.job_log_dir.string());
  for (const std::string& set : line.sets)
    if (fits || !sets_mesh_shape(set)) command += " --set " + shell_quoted(set);
  if (!fits) command += fmt::format(" --set {}", fitting_shape(configured, devices));
  return command;
}

// The message for a user who starts an experiment without its data: what is missing, where it was
// expected, and the commands that lead to a run. nullopt if nothing is missing or the mode reads no
// data. `devices`: of the whole run; the last command asks for a mesh of that size.
std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const CommandLine& line, int64_t devices) {
  const auto find = configured.entry.missing_data;
  if (find == nullptr || !reads_data(line.run.mode)) return std::nullopt;
  const std::optional<MissingData> missing = find(*configured.experiment, configured.config);
  if (!missing) return std::nullopt;
  std::string text = fmt::format("{}: {}. These commands make it and train:\n\n",
                                 configured.entry.name, missing->what);
  for (const std::string& command : missing->commands) text += fmt::format("  {}\n", command);
  text += fmt::format("  {}\n", run_command(configured, line, devices));
  if (!missing->advice.empty()) text += fmt::format("\n{}\n", missing->advice);
  return text;
}

// The result of this process if it were alone.
struct Ending {
  int exit_code = kDone;
  std::string error;
  filesystem::path run_directory = {};  // Its failures.log gets the error; or empty.
};

// The default: the processors this process may use, divided among the host's processes that are not
// bound to their own.
int thread_budget(const CommandLine& line, const ProcessGroup& processes) {
  if (line.threads > 0 || processes.size() == 1) return line.threads;
  const int usable = usable_processors();
  if (usable < sysconf(_SC_NPROCESSORS_ONLN)) return usable;
  int together = 0;
  for (int rank = 0; rank < processes.size(); ++rank)
    if (processes.host(rank) == processes.host(processes.rank())) ++together;
  return std::max(1, usable / together);
}

// Of one of several devices: a kernel's scratch memory depends on its threads.
int threads_of_device(const RunOptions& options) {
  const int64_t threads = options.threads > 0 ? options.threads : usable_processors();
  return static_cast<int>(std::max<int64_t>(1, threads / options.devices));
}

// The steps that a run traces of its own accord, for its report: late enough that memory and caches
// are warm. None of a short run, of which writing the trace would be a considerable part, or of one
// that is resumed. All processes trace the same steps.
std::optional<ProfileWindow> early_steps(const ConfiguredExperiment& configured,
                                         const RunOptions& options, ProcessGroup& processes) {
  constexpr ProfileWindow kEarly{.start = 10, .steps = 2};
  constexpr int64_t kFewestSteps = 50;
  const bool is_long = num_train_steps(configured.config_tree()) >= kFewestSteps;
  if (options.mode != RunMode::kTrain || options.dry_run || !is_long) return std::nullopt;
  const bool is_new = options.restart || !run_has_begun(options.job_log_dir);
  const std::string traces = processes.broadcast(is_new ? "yes" : "", "whether to trace steps");
  return traces.empty() ? std::nullopt : std::optional(kEarly);
}

Ending run(const ConfiguredExperiment& configured, const CommandLine& line, const DeviceKind& kind,
           ProcessGroup& processes, Watchdog* watch) {
  RunOptions options = line.run;
  options.experiment = configured.entry.name;
  options.site = configured.entry.site;
  options.code = code_stamp(configured.entry);
  options.overrides = configured.overrides;
  options.threads = thread_budget(line, processes);
  if (options.mode == RunMode::kPlan) options.plan_directory = options.job_log_dir;
  if (line.replay && options.job_log_dir.empty() && !configured.config_file.empty())
    options.job_log_dir = configured.config_file.parent_path();  // The run of --config.
  if (options.job_log_dir.empty())
    options.job_log_dir =
        filesystem::path("runs") / (configured.entry.name + (line.smoke ? ".smoke" : ""));
  options.launch_costs = shared_launch_costs(line.launch_costs, processes);
  if (options.hardware && options.launch_costs)
    options.hardware->launches = options.launch_costs->launches;
  if (line.traces_early_steps) options.profile = early_steps(configured, options, processes);
  // A plan for any mesh needs one device, to ask about its kernels.
  const bool plans = options.mode == RunMode::kPlan;
  std::vector<std::unique_ptr<Device>> devices;
  if (!options.hardware)
    devices = kind.make_devices(plans ? 1 : options.devices,
                                plans ? threads_of_device(options) : options.threads,
                                local_rank(processes.transport().get()));
  else
    devices.push_back(make_planned_device(*options.hardware));
  std::vector<Device*> in_order;
  for (const auto& device : devices) in_order.push_back(device.get());
  const ExperimentConfig& config = configured.config;
  const std::unique_ptr<BaseRun> mode =
      line.replay
          ? replay_run(config, options, replay_setting(line, *line.replay), in_order, processes)
      : line.refit ? refit_run(config, options, *line.refit, in_order, processes)
                   : make_run(config, options, in_order, processes);
  processes.barrier("the start of the run");
  const bool logs = options.mode == RunMode::kTrain && !options.dry_run && !line.replay;
  if (logs && watch != nullptr) watch->log_in(options.job_log_dir);
  try {
    return {mode->run(), ""};
  } catch (const DirectoryLost& error) {
    return {kFailed, error.what()};  // Not in failures.log: the directory may be another run's.
  } catch (const std::exception& error) {
    // The caller takes exceptions for configuration errors.
    return {kFailed, error_text(error), logs ? options.job_log_dir : filesystem::path()};
  }
}

// The devices of each process with --smoke or --mode=replay: as many as the mesh needs.
int64_t devices_for(const MeshConfig& mesh, const ProcessGroup& processes) {
  const int64_t needed = planned_mesh(mesh, processes.size()).num_devices();
  return std::max<int64_t>(1, needed / processes.size());
}

// With --smoke: a run on devices that are not asked for, and what it does not make small.
CommandLine prepare_smoke(const ConfiguredExperiment& configured, CommandLine line,
                          const ProcessGroup& processes, std::ostream& errors) {
  if (!line.has_devices) line.run.devices = devices_for(configured.config.mesh, processes);
  if (!configured.entry.has_shrink)
    fmt::print(errors,
               "runexp: --smoke makes only the mesh and the number of steps of {} small; to make "
               "its layers and data small, override shrink() (docs/experiments.md)\n",
               configured.entry.name);
  return line;
}

// Each process checks its own machine; the first problem of any is reported.
Ending check_this_machine(const CommandLine& line, const DeviceKind& kind,
                          const ProcessGroup& processes, std::ostream& out) {
  const int threads = thread_budget(line, processes);
  const std::string problem =
      selfcheck({.make_device =
                     [&](int count) {
                       const int place = local_rank(processes.transport().get());
                       return std::move(kind.make_devices(1, count, place)[0]);
                     },
                 .threads = threads > 0 ? threads : usable_processors(),
                 .report = [&](const std::string& text) { out << text << std::endl; }});
  if (problem.empty()) return {};
  return {kFailed, "selfcheck: " + problem};
}

// Fails if the output is incomplete, unless the reader closed the pipe (`| head -1`).
Ending check_printed(Ending ending) {
  const std::string loss = flush_standard_output();
  if (ending.exit_code != kDone || loss.empty()) return ending;
  return {kFailed, "cannot write to standard output: " + loss};
}

ConfiguredExperiment configured_by(const CommandLine& line,
                                   const std::vector<filesystem::path>& folders) {
  std::optional<StoredConfig> stored;
  if (!line.config.empty()) stored = read_config(line.config);
  const ExperimentEntry entry =
      find_experiment(stored ? stored->experiment : line.experiment, folders);
  try {
    if (stored) return configure(entry, *stored, line.sets);
    return configure(entry, line.sets, line.smoke ? RecipeSize::kSmoke : RecipeSize::kFull);
  } catch (const Error& error) {
    fail("{}{}", error.what(), plugins_not_loaded(folders));
  }
}

Ending sweep(const CommandLine& line, const std::vector<filesystem::path>& folders,
             const DeviceKind& kind, ProcessGroup& processes, std::ostream& out,
             std::ostream& errors) {
  const auto configured = [&](const std::vector<std::string>& sets) {
    CommandLine with = line;
    with.sets.insert(with.sets.end(), sets.begin(), sets.end());
    return configured_by(with, folders);
  };
  const auto missing = [&](const ConfiguredExperiment& trial) {
    return missing_data_message(trial, line, line.run.devices);
  };
  return {run_sweep({line, configured, missing, kind, processes, out, errors}), ""};
}

// Adds to an error what may fix it, if the mesh is the reason.
Ending run_with_advice(const ConfiguredExperiment& configured, const CommandLine& line,
                       const DeviceKind& kind, ProcessGroup& processes, Watchdog* watch) {
  const bool traces = line.run.mode == RunMode::kTrain || line.run.mode == RunMode::kPlan;
  try {
    return run(configured, line, kind, processes, watch);
  } catch (const Error& error) {
    if (!traces) throw;
    throw Error(error.what() +
                fitting_mesh_advice(configured, line.run.devices * processes.size()));
  }
}

Ending act(CommandLine line, ProcessGroup& processes, Watchdog* watch, std::ostream& out,
           std::ostream& errors) {
  using Action = CommandLine::Action;
  if (line.action == Action::kHelp) {
    out << help_text();
    return check_printed({});
  }
  if (line.action == Action::kVersion) {
    fmt::print(out, "tessera {}\n", build_stamp());
    return check_printed({});
  }
  if (line.action == Action::kNew) {
    if (processes.is_first())
      out << write_new_project(line.new_project, filesystem::canonical("/proc/self/exe"));
    return check_printed({});
  }
  if (line.action == Action::kReport || line.action == Action::kCompare ||
      line.action == Action::kWatch) {
    if (processes.is_first()) show_runs(line, out);
    return check_printed({});
  }
  const auto folders = plugin_path(line.plugin_path);
  const DeviceKind& kind = find_device(line.device, folders);
  if (line.action == Action::kList) return check_printed({list(line, out, errors), ""});
  if (line.action == Action::kSelfcheck) return check_this_machine(line, kind, processes, out);
  if (line.action == Action::kCalibrate) {
    if (processes.size() > 1)
      fail("--mode=calibrate measures one machine: start it as one process");
    run_calibration(line, out);
    return check_printed({});
  }
  if (line.action == Action::kSweep)
    return check_printed(sweep(line, folders, kind, processes, out, errors));
  const ConfiguredExperiment configured = configured_by(line, folders);
  compare_configurations(configured, processes);
  if (line.smoke) line = prepare_smoke(configured, std::move(line), processes, errors);
  if (line.replay && !line.has_devices)
    line.run.devices = devices_for(configured.config.mesh, processes);
  if (line.action == Action::kDescribe)
    return check_printed({describe_experiment(configured, out), ""});
  if (line.action == Action::kDiff)
    return check_printed({diff_experiments(configured, line, out), ""});
  if (const auto message =
          missing_data_message(configured, line, line.run.devices * processes.size())) {
    fmt::print(errors, "runexp: {}", *message);  // Several lines: commands to copy.
    return {kBadUsage, ""};
  }
  if (line.search) {
    if (processes.size() > 1) fail("--search needs no devices: start it as one process");
    run_search(configured, line, *line.search, out);
    return check_printed({});
  }
  const bool prints = line.run.mode == RunMode::kPlan || line.run.mode == RunMode::kDecode ||
                      line.replay.has_value();
  const Ending ending = run_with_advice(configured, line, kind, processes, watch);
  return prints ? check_printed(ending) : ending;
}

Ending catch_errors(const std::function<Ending()>& action) {
  try {
    return action();
  } catch (const Error& error) {
    return {kBadUsage, error.what()};
  } catch (const filesystem::filesystem_error& error) {
    return {kBadUsage, error_text(error)};
  } catch (const std::exception& error) {
    return {kFailed, error_text(error)};
  }
}

// Whether this process is the first with its error, which the others do not repeat.
bool is_first_with_its_error(const SharedFailure& failure, int rank) {
  const std::string& own = failure.errors[static_cast<size_t>(rank)];
  return !own.empty() &&
         std::find(failure.errors.begin(), failure.errors.end(), own) - failure.errors.begin() ==
             rank;
}

// All processes return one code, and each error is printed once.
int end_together(Ending ending, ProcessGroup& processes, std::ostream& errors) {
  if (ending.error.empty()) {
    const Ending agreed = catch_errors([&]() -> Ending {
      return {static_cast<int>(processes.all_reduce_max(ending.exit_code, "the end of the run")),
              ""};
    });
    if (agreed.error.empty()) return agreed.exit_code;
    ending = {kFailed, agreed.error, ending.run_directory};
  }
  const auto failure = processes.fail_together(ending.error, ending.exit_code, kFailurePatience);
  const std::string text =
      processes.is_first() ? ending.error : processes.name(processes.rank()) + ": " + ending.error;
  if (!failure || is_first_with_its_error(*failure, processes.rank())) {
    fmt::print(errors, "runexp: {}\n", one_line(text));
    log_failure(ending.run_directory, text);
  }
  errors.flush();
  if (!failure) processes.transport()->abort(ending.exit_code);
  return failure->exit_code;
}

// Open MPI sends SIGTERM one second after a process dies and kills a second later; Slurm kills
// after KillWait, 30 s by default.
std::chrono::milliseconds last_moment(const LaunchEnvironment& launch) {
  return std::chrono::milliseconds(launch.by == "srun" ? 10000 : 600);
}

}  // namespace

int run_runexp(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& errors) {
  const LaunchEnvironment launch = find_launch_environment();
  std::optional<Watchdog> watch;  // Outlives the transport, whose destructor may wait.
  if (launch.size > 1)
    watch.emplace(fmt::format("process {} of {}", launch.rank, launch.size), last_moment(launch));
  std::shared_ptr<Transport> transport;
  try {
    transport = join_processes(launch);
  } catch (const std::exception& error) {
    // The others cannot be asked; those of this host report the same. The first to exit ends all.
    if (launch.local_rank != 0) std::this_thread::sleep_for(kFailurePatience);
    fmt::print(errors, "runexp: {}\n", one_line(error.what()));
    return kBadUsage;
  }
  ProcessGroup processes(std::move(transport));
  Watchdog* const watching = watch ? &*watch : nullptr;
  const Watchdog::Attention attention(watching, processes);
  std::ostream nowhere(nullptr);
  const Ending ending = catch_errors([&] {
    CommandLine line = parse_command_line(arguments);
    compare_flags(arguments, processes);
    return act(std::move(line), processes, watching, processes.is_first() ? out : nowhere,
               processes.is_first() ? errors : nowhere);
  });
  const int exit_code = end_together(ending, processes, errors);
  // If this process returned, the launcher would end the others before they finish.
  if (watch && exit_code != kDone) watch->dismiss();
  return exit_code;
}

}  // namespace tessera
