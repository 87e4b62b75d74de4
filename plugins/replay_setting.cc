// SPDX-License-Identifier: Apache-2.0
#include "plugins/replay_setting.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/ranges.h>

#include "core/backend/cpu/processor.h"
#include "core/base/error.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"

namespace tessera {
namespace {

using Side = OtherSideChoice::Kind;

// The program that runs, unless another build is asked for.
std::string other_program(const OtherSideChoice& against) {
  if (against.kind != Side::kBuild) return std::filesystem::canonical("/proc/self/exe").string();
  const std::filesystem::path program = std::filesystem::absolute(against.value);
  if (!std::filesystem::is_regular_file(program) || ::access(program.c_str(), X_OK) != 0)
    fail("--against=build:{}: not a program; give the path of another build's runexp",
         against.value);
  return program.string();
}

// What it must record: --tolerance and the values of elements need outputs, --isolate inputs, too.
std::string recorded_for(const ReplayOptions& replay) {
  return std::string(recorded_values_name(
      replay.inputs == LaunchInputs::kOther ? RecordedValues::kAll : RecordedValues::kOutputs));
}

// This command with the other setting, without what is compared and recorded here.
std::vector<std::string> other_command(const CommandLine& line, const ReplayOptions& replay,
                                       const std::string& kernels_of) {
  const OtherSideChoice& against = replay.against;
  std::vector<std::string> command = {other_program(against), "--mode=replay"};
  const auto add = [&command](std::string_view flag, const std::string& value) {
    if (!value.empty()) command.push_back(fmt::format("--{}={}", flag, value));
  };
  add("exp", line.experiment);
  add("config", line.config.string());
  if (line.smoke) command.emplace_back("--smoke");
  for (const std::string& set : line.sets) add("set", set);
  for (const std::filesystem::path& place : line.plugin_path) add("plugin_path", place.string());
  add("job_log_dir", line.run.job_log_dir.string());
  if (line.has_devices) add("devices", fmt::format("{}", line.run.devices));
  add("device", against.kind == Side::kDevice ? against.value : line.device);
  if (against.kind == Side::kThreads) {
    add("threads", against.value);
  } else if (line.threads > 0) {
    add("threads", fmt::format("{}", line.threads));
  }
  if (line.run.checkpoint.kind == CheckpointChoice::Kind::kStep)
    add("checkpoint", fmt::format("{}", line.run.checkpoint.step));
  add("step", fmt::format("{}", replay.step));
  add("kernels_of", kernels_of);
  add("record_values", recorded_for(replay));
  return command;
}

// Whether this kind of device has a kernel. One device of it is kept to ask. `flag` is what the
// user wrote before the kind.
std::function<bool(const OpDef&)> kernels_of_kind(const std::string& kind, std::string_view flag,
                                                  const CommandLine& line) {
  auto devices = find_device(kind, plugin_path(line.plugin_path), flag).make_devices(1, 1, 0);
  const std::shared_ptr<Device> device = std::move(devices.at(0));
  return [device](const OpDef& op) { return device->has_kernel(op); };
}

void require_level(const std::string& name) {
  std::vector<std::string> levels;
  for (const CpuLevel level : machine_levels()) levels.emplace_back(level_name(level));
  if (std::find(levels.begin(), levels.end(), name) == levels.end())
    fail("--against=cpu_level:{}: this processor has {}{}", name, fmt::join(levels, ", "),
         did_you_mean(name, levels));
}

}  // namespace

ReplaySetting replay_setting(const CommandLine& line, const ReplayOptions& replay) {
  const OtherSideChoice& against = replay.against;
  ReplaySetting setting{.replay = replay, .build = std::string(build_stamp())};
  std::string other_kind = replay.kernels_of;  // In this process,
  std::string own_kind = replay.kernels_of;    // and in the other.
  if (against.kind == Side::kDevice) {
    if (!replay.kernels_of.empty())
      fail("--kernels_of is not needed with --against=device:{}, which sets it", against.value);
    other_kind = against.value;
    own_kind = line.device;
  }
  if (against.kind == Side::kCpuLevel) {
    require_level(against.value);
    setting.other_environment = fmt::format("{}={}", kLevelVariable, against.value);
  }
  if (!other_kind.empty() && other_kind != line.device)
    setting.other_has_kernel = kernels_of_kind(
        other_kind, against.kind == Side::kDevice ? "--against=device:" : "--kernels_of=", line);
  if (against.kind != Side::kNone && against.kind != Side::kRecording)
    setting.other_command = other_command(line, replay, own_kind);
  return setting;
}

}  // namespace tessera
