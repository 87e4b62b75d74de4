// SPDX-License-Identifier: Apache-2.0
// --mode=plan: what a step needs and costs, without running it.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct PlanCommand {
  static constexpr CommandInfo kInfo{
      .mode = "plan", .summary = "report what a step needs and costs without running it"};
  ExperimentFlags experiment;
  DeviceFlags devices;
  fs::path job_log_dir;
  DryRunFlags dry;
  std::string hardware;
  fs::path launch_costs;
  fs::path compare_plan;
  fs::path output;
  std::optional<GraphStage> dump_graph;
  FIELDS(
      experiment, devices,
      About(job_log_dir, "write plan.txt and plan.json there", {.unit = "DIR"}), dry,
      About(hardware,
            "predict the time of each launch of a step, tokens per second and MFU on this "
            "device, without it: a TOML file of yours (docs/hardware.md), or",
            {.unit = "WHICH"}),
      About(launch_costs,
            "schedule overlapped collectives, and predict with --hardware, by what launches took "
            "in that run (its hardware.toml)",
            {.unit = "FILE"}),
      About(compare_plan,
            "print what changes since the plan.json of an earlier one, or of the run in this "
            "directory: memory, bytes and time by line of layer code",
            {.unit = "OTHER"}),
      About(output, "also write the plan as JSON to this file", {.unit = "FILE"}),
      About(dump_graph, "write the step's graph after this stage (text, DOT, SVG)"))

  void check() const {
    experiment.check();
    devices.kind.check();
    if (!hardware.empty() && devices.kind.device)
      fail("--device cannot be used with --hardware, which names the device that is planned for");
    if (!hardware.empty()) hardware_of(hardware);
  }

  CommandResult run(const CommandContext& context) const {
    PlanOptions options{.dump_graph = dump_graph,
                        .launch_costs = shared_launch_costs(launch_costs, context.processes),
                        .directory = job_log_dir,
                        .compare_with = compare_plan,
                        .output = output};
    if (!hardware.empty()) options.hardware = hardware_of(hardware);
    if (options.hardware && options.launch_costs)
      options.hardware->launches = options.launch_costs->launches;
    const RunFlags flags{experiment, devices, {job_log_dir}, dry};
    const ExperimentJob job{
        .flags = flags, .advises_mesh = true, .plans = true, .planned_for = options.hardware};
    return check_printed(run_mode(job, context, plan_run, options));
  }
};

}  // namespace

std::unique_ptr<Command> plan_command() { return command_of<PlanCommand>(); }

}  // namespace tessera
