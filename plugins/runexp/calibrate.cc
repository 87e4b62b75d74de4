// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate: measures this machine and writes a hardware file. With --trace it fits one to
// the trace of a run instead.
#include "tasks/planner/calibrate/calibrate.h"

#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Calibrate {
  static constexpr CommandInfo kInfo{.mode = "calibrate",
                                     .summary = "measure this CPU for --hardware; two minutes"};
  DeviceFlags devices;
  PluginFlags plugins;
  fs::path output;
  bool restart = false;
  bool smoke = false;
  fs::path job_log_dir;
  FIELDS(devices, plugins,
         About(output, "the hardware file (default: cpu.toml or --job_log_dir/cpu.toml)",
               {.unit = "FILE"}),
         About(restart, "replace that file"), About(smoke, "a rough one in seconds"),
         About(job_log_dir, "the folder for cpu.toml", {.unit = "DIR"}))

  void check() const { devices.check(); }

  CommandResult run(const CommandContext& context) const {
    find_device(devices.kind.kind(), plugins.folders());
    if (context.processes.size() > 1)
      fail("--mode=calibrate measures one machine: start it as one process");
    if (devices.kind.kind() != "cpu")
      fail(
          "--device={}: --mode=calibrate measures the CPU device only; for another one copy the "
          "file of hardware/ that is most like it (docs/hardware.md)",
          devices.kind.kind());
    const int64_t threads = devices.kind.threads.value_or(usable_processors());
    if (devices.count() > threads)
      fail("--devices={}: expected at most {}, one for each thread (--threads)", devices.count(),
           threads);
    const fs::path file = output.empty() ? job_log_dir / "cpu.toml" : output;
    calibrate({.devices = devices.count(),
               .threads = static_cast<int>(threads),
               .size = smoke ? CalibrationSize::kQuick : CalibrationSize::kFull,
               .output = file,
               .replaces = restart,
               .report = [&](const std::string& text) { context.out << text << std::endl; }});
    const std::string name = file.string();
    const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml");
    fmt::print(context.out,
               "\nwrote {}; predict steps on this machine with --mode=plan --hardware={}\n", name,
               shell_quoted(is_path ? name : "./" + name));
    return check_printed();
  }
};

struct Refit {
  static constexpr CommandInfo kInfo{
      .mode = "calibrate",
      .flag = "trace",
      .summary = "fit a hardware file to what a run's launches took"};
  fs::path trace;
  std::string hardware;
  fs::path job_log_dir;
  ExperimentFlags experiment;
  DeviceFlags devices;
  FIELDS(About(trace,
               "the run, its trace.json.gz, or a file with [launches], such as gpu_check's "
               "campaign.toml (docs/launch_costs.md)",
               {.unit = "RUN"}),
         About(hardware, "the file to start from, whose peaks are kept: yours, or one of",
               {.unit = "WHICH"}),
         About(job_log_dir, "where to write hardware.toml (default: where the trace is)",
               {.unit = "DIR"}),
         experiment, devices)

  void check() const {
    devices.check();
    required_hardware(hardware,
                      "--mode=calibrate --trace starts from a hardware file, whose peaks it keeps");
    of_run(trace_file()).check();
  }

  CommandResult run(const CommandContext& context) const {
    const fs::path file = trace_file();
    const RefitOptions options{.trace = file,
                               .hardware = hardware_of(hardware),
                               .directory = job_log_dir.empty() ? file.parent_path() : job_log_dir};
    const RunFlags flags{of_run(file), devices, {options.directory}, {}};
    // The program is that of the traced device, which is asked about its kernels. Launches of a
    // file may be those of a device that is not here.
    ExperimentJob job{.flags = flags, .advises_mesh = true, .plans = true};
    if (is_launches_file(file) && !devices.kind.device) job.planned_for = options.hardware;
    return check_printed(run_experiment(
        job, context, [&options](const JobParts& parts) { return refit_run(parts, options); }));
  }

 private:
  fs::path trace_file() const {
    fs::path file = trace;
    if (fs::is_directory(file)) file /= "trace.json.gz";
    if (!fs::is_regular_file(file))
      fail(
          "--trace={}: {} is not a file; expected a run's directory or its trace.json.gz, which "
          "new runs of at least 50 steps and --profile=START:N write",
          trace.string(), file.string());
    return file.has_parent_path() ? file : "." / file;
  }

  // Without --exp, uses the experiment of the run.
  ExperimentFlags of_run(const fs::path& file) const {
    ExperimentFlags flags = experiment;
    if (flags.exp.empty() && flags.config.empty() && !is_launches_file(file))
      flags.config = file.parent_path();
    return flags;
  }
};

}  // namespace

std::unique_ptr<Command> calibrate_command() { return command_of<Calibrate>(); }
std::unique_ptr<Command> refit_command() { return command_of<Refit>(); }

}  // namespace tessera
