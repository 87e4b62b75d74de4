// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/experiment_run.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <string_view>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "core/base/region.h"
#include "core/base/terminal.h"
#include "core/hparams/text.h"
#include "core/io/storage/storage.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/planner/prediction.h"
#include "tasks/run/directory/remote_run.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/search/search.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

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

// Threads of each device of a plan, which decide how much scratch memory its kernels need.
int threads_of_device(const RunSetting& setting) {
  const int64_t threads = setting.threads > 0 ? setting.threads : usable_processors();
  return static_cast<int>(std::max<int64_t>(1, threads / setting.devices));
}

// The number of devices of each process that the mesh needs.
int64_t devices_for(const MeshConfig& mesh, const ProcessGroup& processes) {
  const int64_t needed = planned_mesh(mesh, processes.size()).num_devices();
  return std::max<int64_t>(1, needed / processes.size());
}

// What to add to an error of a run whose mesh does not suit its model: the nearest mesh that does,
// and the command that searches for the best one. "" if the mesh is not the reason.
std::string fitting_mesh_advice(const ConfiguredExperiment& configured, int64_t devices) {
  const auto shape = nearest_fitting_shape(configured.config, devices);
  if (!shape) return "";
  const int64_t all = element_count(*shape) * element_count(configured.config.mesh.dcn_mesh_shape);
  return fmt::format(
      "; the nearest mesh of {} devices that fits is --set mesh.ici_mesh_shape=[{}], and "
      "--mode=plan --search --devices={} --hardware=NAME finds the best one",
      all, fmt::join(*shape, ","), all);
}

RunSetting setting_of(const ExperimentJob& job, const ConfiguredExperiment& configured,
                      const ProcessGroup& processes) {
  const auto& [experiment, devices, directory, dry] = job.flags;
  const bool fits = !devices.devices && (job.fits_mesh || experiment.smoke);
  const std::string name = configured.entry.name + (experiment.smoke ? ".smoke" : "");
  return {.experiment = configured.entry.name,
          .site = configured.entry.site,
          .code = code_stamp(configured.entry),
          .job_log_dir =
              directory.job_log_dir.empty() ? fs::path("runs") / name : directory.job_log_dir,
          .devices = fits ? devices_for(configured.config.mesh, processes) : devices.count(),
          .threads = thread_budget(devices.kind, processes),
          .restart = job.resume.restart,
          .allow_config_change = job.resume.allow_config_change,
          .allow_code_change = job.resume.allow_code_change,
          .dry_run = dry.dry_run,
          .overrides = configured.overrides};
}

std::vector<std::unique_ptr<Device>> devices_of(const ExperimentJob& job, const DeviceKind& kind,
                                                const RunSetting& setting,
                                                const ProcessGroup& processes) {
  std::vector<std::unique_ptr<Device>> devices;
  if (job.planned_for) {
    devices.push_back(make_planned_device(*job.planned_for));
    return devices;
  }
  return kind.make_devices(job.plans ? 1 : setting.devices,
                           job.plans ? threads_of_device(setting) : setting.threads,
                           local_rank(processes.transport().get()));
}

CommandResult run_on(const std::vector<std::unique_ptr<Device>>& devices, const ExperimentJob& job,
                     const ConfiguredExperiment& configured, const RunSetting& setting,
                     const CommandContext& context,
                     const std::function<std::unique_ptr<BaseRun>(const JobParts&)>& make) {
  std::vector<Device*> in_order;
  for (const auto& device : devices) in_order.push_back(device.get());
  const auto make_in = [&](const RunSetting& placed) {
    return make({{configured.config, placed, in_order, context.processes}, configured});
  };
  const std::unique_ptr<BaseRun> run =
      job.plans ? make_in(setting) : make_run(setting, context.processes, make_in);
  context.processes.barrier("the start of the run");
  const bool logs = job.trains && !setting.dry_run;
  if (logs && context.watch != nullptr) context.watch->log_in(setting.job_log_dir);
  try {
    return {run->run()};
  } catch (const DirectoryLost& error) {
    return {kFailed, error.what()};  // Not in failures.log: the directory may be another run's.
  } catch (const std::exception& error) {
    // The caller takes exceptions for configuration errors.
    return {kFailed, error_text(error), logs ? setting.job_log_dir : fs::path()};
  }
}

// If --job_log_dir is a URL, makes the local directory of the run. A collective call.
std::shared_ptr<RemoteRun> place_remote_run(const ExperimentJob& job, RunSetting* setting,
                                            ProcessGroup& processes) {
  if (!is_url(setting->job_log_dir)) return nullptr;
  using Access = RemoteRun::Access;
  auto remote = std::make_shared<RemoteRun>(
      setting->job_log_dir.string(),
      job.writes && !setting->dry_run ? Access::kWrite : Access::kRead, processes);
  setting->url = remote->url();
  setting->job_log_dir = remote->directory();
  return remote;
}

void end_remote_run(RemoteRun& remote, CommandResult* ending) {
  try {
    remote.finish();
  } catch (const Error& error) {
    if (ending->error.empty())
      *ending = {kFailed, error.what()};
    else
      print_error(error.what());
  }
}

// --set, --exp and --config are compared by the configuration that they give.
constexpr std::string_view kFlagsOfHost[] = {"config",   "exp",    "job_log_dir", "launch_costs",
                                             "input",    "output", "plugin_path", "set",
                                             "set_file", "threads"};

// Whether a field is a path on the host's own disk: its name is path, directory or …_path.
bool is_of_host(std::string_view field) {
  field = field.substr(0, field.find('['));
  const std::string_view name = field.substr(field.rfind('.') + 1);
  return name == "path" || name == "directory" || name.ends_with("_path");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Compares lines, each of which names what it is. The checksums go first: the texts of a thousand
// processes are large.
void compare(const std::vector<std::string>& mine, ProcessGroup& processes) {
  const std::string text = fmt::format("{}", fmt::join(mine, "\n"));
  const std::vector<std::string> sums = processes.all_gather(
      fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text)))), "whether all processes agree");
  const auto other = std::ranges::find_if(sums, [&](const std::string& s) { return s != sums[0]; });
  if (other == sums.end()) return;
  const std::vector<std::string> texts = processes.all_gather(text, "how the processes differ");
  const auto rank = static_cast<size_t>(other - sums.begin());
  const auto lines = lines_of(texts[rank]), expected = lines_of(texts[0]);
  const auto [got, first] = std::ranges::mismatch(lines, expected);
  fail(
      "{} was started differently: it has {}, but process 0 has {}; start all processes with the "
      "same command",
      processes.name(static_cast<int>(rank)), got == lines.end() ? "nothing" : *got,
      first == expected.end() ? "nothing" : *first);
}

}  // namespace

void compare_flags(const std::vector<GivenFlag>& given, ProcessGroup& processes) {
  if (processes.size() == 1) return;
  std::vector<std::string> lines;
  for (const auto& [name, words] : given)
    if (std::ranges::find(kFlagsOfHost, name) == std::end(kFlagsOfHost))
      lines.push_back(fmt::format("--{} {}", name, fmt::join(words, " ")));
  compare(lines, processes);
}

void compare_configurations(const ConfiguredExperiment& configured, ProcessGroup& processes) {
  if (processes.size() == 1) return;
  const CodeStamp code = code_stamp(configured.entry);
  std::vector<std::string> lines = {"build " + code.build, "plugins " + code.plugins,
                                    "experiment " + configured.entry.name};
  constexpr std::string_view kBefore = ": absent -> ";  // In the difference to nothing.
  for (std::string line : diff(Tree{}, configured.config_tree()))
    if (const size_t end = line.find(kBefore);
        end != std::string::npos && !is_of_host(line.substr(0, end)))
      lines.push_back(line.replace(end, kBefore.size(), " = "));
  compare(lines, processes);
}

ConfiguredExperiment configured_by(const ExperimentFlags& flags,
                                   const std::vector<std::string>& sets) {
  const std::vector<fs::path> folders = flags.plugins.folders();
  std::vector<std::string> all = flags.sets();
  all.insert(all.end(), sets.begin(), sets.end());
  std::optional<StoredConfig> stored;
  if (!flags.config.empty()) stored = read_config(flags.config);
  const ExperimentEntry entry = find_experiment(stored ? stored->experiment : flags.exp, folders);
  try {
    if (stored) return configure(entry, *stored, all);
    return configure(entry, all, flags.smoke ? RecipeSize::kSmoke : RecipeSize::kFull);
  } catch (const Error& error) {
    fail("{}{}", error.what(), plugins_not_loaded(folders));
  }
}

ConfiguredExperiment configured_together(const ExperimentFlags& flags,
                                         const CommandContext& context) {
  ConfiguredExperiment configured = configured_by(flags);
  compare_configurations(configured, context.processes);
  if (flags.smoke && !configured.entry.has_shrink)
    fmt::print(context.errors,
               "runexp: --smoke makes only the mesh and the number of steps of {} small; to make "
               "its layers and data small, override shrink() (docs/experiments.md)\n",
               configured.entry.name);
  return configured;
}

std::string training_command(const ConfiguredExperiment& configured, RunFlags flags) {
  if (!flags.experiment.exp.empty()) flags.experiment.exp = configured.entry.name;
  flags.dry.dry_run = false;
  return "./runexp " + shell_command(to_arguments(TrainFlags{.flags = std::move(flags)}));
}

std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const RunFlags& flags, int64_t num_devices) {
  const auto find = configured.entry.missing_data;
  if (find == nullptr) return std::nullopt;
  const std::optional<MissingData> missing = find(*configured.experiment, configured.config);
  if (!missing) return std::nullopt;
  std::string text = fmt::format("{}: {}. These commands make it and train:\n\n",
                                 configured.entry.name, missing->what);
  for (const std::string& command : missing->commands) text += fmt::format("  {}\n", command);
  RunFlags fitting = flags;
  if (!mesh_fits(configured.config.mesh, num_devices)) {
    std::erase_if(fitting.experiment.set, sets_mesh_shape);
    fitting.experiment.set.push_back(fitting_shape(configured, num_devices));
  }
  text += fmt::format("  {}\n", training_command(configured, fitting));
  if (!missing->advice.empty()) text += fmt::format("\n{}\n", missing->advice);
  return text;
}

int thread_budget(const KindFlags& flags, const ProcessGroup& processes) {
  if (flags.threads || processes.size() == 1) return flags.thread_count();
  const int usable = usable_processors();
  if (usable < sysconf(_SC_NPROCESSORS_ONLN)) return usable;
  int together = 0;
  for (int rank = 0; rank < processes.size(); ++rank)
    if (processes.host(rank) == processes.host(processes.rank())) ++together;
  return std::max(1, usable / together);
}

CommandResult run_experiment(const ExperimentJob& job, const CommandContext& context,
                             const std::function<std::unique_ptr<BaseRun>(const JobParts&)>& make) {
  const RunFlags& flags = job.flags;
  ProcessGroup& processes = context.processes;
  const DeviceKind& kind =
      find_device(flags.devices.kind.kind(), flags.experiment.plugins.folders());
  const ConfiguredExperiment configured = configured_together(flags.experiment, context);
  RunSetting setting = setting_of(job, configured, processes);
  const int64_t num_devices = setting.devices * processes.size();
  if (job.reads_data)
    if (const auto message = missing_data_message(configured, flags, num_devices)) {
      fmt::print(context.errors, "runexp: {}", *message);  // Several lines: commands to copy.
      return {kBadUsage};
    }
  const std::shared_ptr<RemoteRun> remote = place_remote_run(job, &setting, processes);
  const auto shown = [&](std::string text) {
    return renamed(std::move(text), setting.job_log_dir.string(), setting.name());
  };
  CommandResult ending;
  try {
    ending =
        run_on(devices_of(job, kind, setting, processes), job, configured, setting, context, make);
  } catch (const Error& error) {
    if (!job.advises_mesh && !remote) throw;
    throw Error(shown(error.what()) +
                (job.advises_mesh ? fitting_mesh_advice(configured, num_devices) : ""));
  }
  ending.error = shown(ending.error);
  if (remote) end_remote_run(*remote, &ending);
  ending.keeps = remote;
  return ending;
}

}  // namespace tessera
