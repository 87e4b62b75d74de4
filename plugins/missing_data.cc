// SPDX-License-Identifier: Apache-2.0
#include "plugins/missing_data.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plugins/command_line.h"

namespace tessera {
namespace {

bool reads_data(RunMode mode) {
  switch (mode) {
    case RunMode::kTrain:
    case RunMode::kEval:
    case RunMode::kDecode:
      return true;
    case RunMode::kPlan:
    case RunMode::kExport:
    case RunMode::kImport:
      return false;
  }
  return false;
}

bool mesh_fits(const Experiment& experiment, int64_t devices) {
  if (experiment.ici_mesh_shape.empty()) return true;  // It uses all devices.
  int64_t wanted = 1;
  for (const int64_t size : experiment.ici_mesh_shape) wanted *= size;
  for (const int64_t size : experiment.dcn_mesh_shape) wanted *= size;
  return wanted == devices;
}

// The knob sets the shape of the default axes; for others, the field of the configuration.
std::string fitting_shape(const MeshConfig& mesh, int64_t devices) {
  return fmt::format("{}ici_mesh_shape=[{}]",
                     mesh.axis_names == MeshConfig{}.axis_names ? "" : "mesh.",
                     fmt::join(shape_along_data(mesh.axis_names, devices), ","));
}

std::string run_command(const ConfiguredExperiment& configured, const CommandLine& line,
                        int64_t devices) {
  const bool fits = mesh_fits(*configured.experiment, devices);
  std::string command = "./runexp --exp=" + configured.name;
  if (line.run.devices > 1) command += fmt::format(" --devices={}", line.run.devices);
  if (!line.run.job_log_dir.empty())
    command += " --job_log_dir=" + shell_quoted(line.run.job_log_dir.string());
  for (const std::string& set : line.sets) {
    const bool is_mesh = set.starts_with("ici_mesh_shape=") || set.starts_with("dcn_mesh_shape=");
    if (fits || !is_mesh) command += " --set " + shell_quoted(set);
  }
  if (!fits) command += fmt::format(" --set {}", fitting_shape(configured.config.mesh, devices));
  return command;
}

}  // namespace

std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const CommandLine& line, int64_t devices) {
  const auto find = configured.entry.missing_data;
  if (find == nullptr || !reads_data(line.run.mode)) return std::nullopt;
  const std::optional<MissingData> missing = find(*configured.experiment, configured.config);
  if (!missing) return std::nullopt;
  std::string text =
      fmt::format("{}: {}. These commands make it and train:\n\n", configured.name, missing->what);
  for (const std::string& command : missing->commands) text += fmt::format("  {}\n", command);
  text += fmt::format("  {}\n", run_command(configured, line, devices));
  if (!missing->advice.empty()) text += fmt::format("\n{}\n", missing->advice);
  return text;
}

}  // namespace tessera
