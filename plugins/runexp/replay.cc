// SPDX-License-Identifier: Apache-2.0
// --mode=replay: repeats a step of a run and compares what each kernel writes. A second process,
// whose command is made here, runs the other side.
#include "tasks/replay/replay.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/devices/cpu/processor.h"
#include "core/io/json.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Side = OtherSideChoice::Kind;

enum class ReplayFind { kNonfinite };

// The program that runs, unless another build is asked for.
std::string other_program(const OtherSideChoice& against) {
  if (against.kind != Side::kBuild) return fs::canonical("/proc/self/exe").string();
  const fs::path program = fs::absolute(against.value);
  if (!fs::is_regular_file(program) || ::access(program.c_str(), X_OK) != 0)
    fail("--against=build:{}: not a program; give the path of another build's runexp",
         against.value);
  return program.string();
}

// Whether this kind of device has a kernel. One device of it is kept to ask. `flag` is what the
// user wrote before the kind.
std::function<bool(const OpDef&)> kernels_of_kind(const std::string& kind, std::string_view flag,
                                                  const std::vector<fs::path>& folders) {
  auto devices = find_device(kind, folders, flag).make_devices(1, 1, 0);
  const std::shared_ptr<Device> device = std::move(devices.at(0));
  return [device](const OpDef& op) { return device->has_kernel(op); };
}

// The number of devices of a mesh shape such as [1,4,1].
int64_t devices_of_shape(const std::string& shape) {
  constexpr int64_t kMost = 1 << 20;  // More than any process can have.
  int64_t devices = 1;
  try {
    const Json mesh = parse_json("{\"shape\": " + shape + "}", "a mesh");
    for (const Json& size : mesh.at("shape").as_array())
      devices = std::min(devices * std::clamp<int64_t>(size.as_integer(), 0, kMost), kMost);
  } catch (const Error&) {
    devices = 0;
  }
  if (devices < 1)
    fail("--against=mesh:{}: expected a value of mesh.ici_mesh_shape, such as mesh:[1,4,1]", shape);
  return devices;
}

void require_level(const std::string& name) {
  std::vector<std::string> levels;
  for (const CpuLevel level : machine_levels()) levels.emplace_back(level_name(level));
  if (std::find(levels.begin(), levels.end(), name) == levels.end())
    fail("--against=cpu_level:{}: this processor has {}{}", name, fmt::join(levels, ", "),
         did_you_mean(name, levels));
}

// Error if `is_given`: the flag cannot be used with that.
void refuse(bool is_given, std::string_view flag, std::string_view with) {
  if (is_given) fail("--{} cannot be used with {}", flag, with);
}

struct ReplayCommand {
  static constexpr CommandInfo kInfo{
      .mode = "replay", .summary = "repeat a step and compare what each kernel writes"};
  ExperimentFlags experiment;
  DeviceFlags devices;
  DirectoryFlags directory;
  std::optional<int64_t> step;
  std::string checkpoint = "newest";
  std::string against;
  double tolerance = 0.0;
  bool isolate = false;
  fs::path record;
  RecordedValues record_values = RecordedValues::kNone;
  std::optional<ReplayFind> find;
  std::string kernels_of;
  FIELDS(
      experiment, devices, directory,
      About(step, "the step, as in metrics.jsonl; from the nearest checkpoint before it",
            {.min = 1}),
      About(checkpoint, "or from this step's (0: the initial weights)", {.unit = "STEP"}),
      About(against,
            "threads:N, device:KIND, cpu_level:LEVEL, build:RUNEXP or mesh:[1,4,1], which a second "
            "process runs; or a recording. Names the first kernel that differs",
            {.unit = "WHAT"}),
      About(tolerance,
            "count floats as equal if they differ by less than T times the largest value of the "
            "array; 0: compare bits",
            {.unit = "T", .min = 0, .below = 1}),
      About(isolate, "give each launch the inputs of the other side, to check each on its own"),
      About(record, "write hashes of what each launch reads and writes, for --against=FILE",
            {.unit = "FILE"}),
      About(record_values, "also record the values themselves: outputs, or all (inputs, too)"),
      About(find, "name the first kernel that writes a NaN or an infinity, compare nothing"),
      About(kernels_of,
            "use only kernels that this kind of device has, too: the program that both kinds run",
            {.unit = "KIND"}))

  void check() const {
    experiment.check();
    devices.check();
    parse_checkpoint(checkpoint, CheckpointCount::kOne);
    if (!step) fail("--mode=replay needs the number of a step: --step=N");
    const bool has_values = record_values != RecordedValues::kNone;
    if (find) {
      constexpr std::string_view kFind = "--find, which compares nothing";
      refuse(!against.empty(), "against", kFind);
      refuse(tolerance > 0.0, "tolerance", kFind);
      refuse(isolate, "isolate", kFind);
      refuse(!record.empty(), "record", kFind);
      refuse(has_values, "record_values", kFind);
      refuse(!kernels_of.empty(), "kernels_of", kFind);
    }
    if (against.empty() && (tolerance > 0.0 || isolate))
      fail("--{} needs something to compare with: give --against",
           isolate ? "isolate" : "tolerance");
    if (record.empty() && has_values) fail("--record_values needs a file: give --record=FILE");
    refuse(isolate && !record.empty(), "record", "--isolate, which changes what launches read");
    if (against.empty()) return;
    const OtherSideChoice other = parse_other_side(against);
    if (other.kind == Side::kThreads) KindFlags{whole_number("threads", other.value, 1)}.check();
    if (other.kind == Side::kMesh) {
      constexpr std::string_view kMesh = "--against=mesh:SHAPE, which compares sums of hashes";
      DeviceFlags{.devices = devices_of_shape(other.value), .kind = {}}.check();
      refuse(tolerance > 0.0, "tolerance", kMesh);
      refuse(isolate, "isolate", kMesh);
    }
  }

  CommandResult run(const CommandContext& context) const {
    RunFlags flags{experiment, devices, directory, {}};
    if (directory.job_log_dir.empty() && !experiment.config.empty())  // The run of --config.
      flags.directory.job_log_dir = read_config(experiment.config).file.parent_path();
    const ExperimentJob job{
        .flags = flags, .reads_data = true, .fits_mesh = true, .advises_mesh = true};
    return check_printed(run_experiment(
        job, context, [this](const JobParts& parts) { return replay_run(parts, setting()); }));
  }

 private:
  // Error if the other kind of device, processor level or program does not exist.
  ReplaySetting setting() const {
    const OtherSideChoice other = against.empty() ? OtherSideChoice{} : parse_other_side(against);
    ReplaySetting setting{
        .replay = {.step = *step,
                   .checkpoint = parse_checkpoint(checkpoint, CheckpointCount::kOne),
                   .against = other,
                   .tolerance = tolerance,
                   .inputs = isolate ? LaunchInputs::kOther : LaunchInputs::kOwn,
                   .record = record,
                   .values = record_values,
                   .kernels_of = kernels_of,
                   .finds_nonfinite = find.has_value()},
        .build = std::string(build_stamp())};
    const std::string own = devices.kind.kind();
    std::string kernels_here = kernels_of, kernels_there = kernels_of;
    if (other.kind == Side::kDevice) {
      if (!kernels_of.empty())
        fail("--kernels_of is not needed with --against=device:{}, which sets it", other.value);
      kernels_here = other.value;
      kernels_there = own;
    }
    if (other.kind == Side::kCpuLevel) {
      require_level(other.value);
      setting.other_environment = fmt::format("{}={}", kLevelVariable, other.value);
    }
    if (!kernels_here.empty() && kernels_here != own)
      setting.other_has_kernel = kernels_of_kind(
          kernels_here, other.kind == Side::kDevice ? "--against=device:" : "--kernels_of=",
          experiment.plugins.folders());
    if (other.kind != Side::kNone && other.kind != Side::kRecording)
      setting.other_command = other_command(other, kernels_there);
    return setting;
  }

  // The command of the other side: this command with the other setting, without the flags of
  // comparing and recording.
  std::vector<std::string> other_command(const OtherSideChoice& side,
                                         const std::string& kernels) const {
    ReplayCommand other = *this;
    other.against.clear();
    other.tolerance = 0.0;
    other.record.clear();
    other.kernels_of = kernels;
    // --tolerance and the values of elements need outputs, --isolate inputs, too.
    other.record_values = side.kind == Side::kMesh ? RecordedValues::kNone
                          : isolate                ? RecordedValues::kAll
                                                   : RecordedValues::kOutputs;
    other.isolate = false;
    if (side.kind == Side::kDevice) other.devices.kind.device = side.value;
    if (side.kind == Side::kThreads)
      other.devices.kind.threads = whole_number("threads", side.value, 1);
    if (side.kind == Side::kMesh) {
      other.devices.devices = devices_of_shape(side.value);
      other.experiment.set.push_back("mesh.ici_mesh_shape=" + side.value);
    }
    std::vector<std::string> command = {other_program(side), "--mode=replay"};
    for (std::string& word : to_arguments(other)) command.push_back(std::move(word));
    return command;
  }
};

}  // namespace

std::unique_ptr<Command> replay_command() { return command_of<ReplayCommand>(); }

}  // namespace tessera
