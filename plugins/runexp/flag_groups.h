// SPDX-License-Identifier: Apache-2.0
// Flags that several commands of runexp have: members of their structs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/run/directory/graph_drawing.h"
#include "tasks/run/run_setting.h"

namespace tessera {

struct PluginFlags {
  static constexpr bool kInlined = true;
  std::vector<std::filesystem::path> plugin_path;
  FIELDS(About(plugin_path,
               "also look for plugins here; may be repeated (or TESSERA_PLUGIN_PATH=A:B)",
               {.unit = "DIR"}))

  std::vector<std::filesystem::path> folders() const;  // All that are searched.
};

struct ExperimentFlags {
  static constexpr bool kInlined = true;
  std::string exp;
  std::filesystem::path config;
  bool smoke = false;
  PluginFlags plugins;
  std::vector<std::filesystem::path> set_file;
  std::vector<std::string> set;
  FIELDS(
      About(exp, "the experiment, or any unique end of its name", {.unit = "FAMILY.Name"}),
      About(config,
            "instead: the configuration in a run's hparams.toml, or in its directory; --set "
            "changes its fields",
            {.unit = "FILE"}),
      About(smoke,
            "make the experiment small before --set: narrow, few layers, at most two devices "
            "along each axis of its mesh, 5 steps, generated data; a few seconds on CPU devices, "
            "as many as that mesh needs unless --devices is given"),
      plugins,
      About(set_file, "set what a file says, such as the search.toml of --search, before --set",
            {.unit = "FILE"}),
      About(set, "set a knob or a field; may be repeated", {.unit = "PATH=VALUE"}))

  // Error unless they name one experiment.
  void check() const;
  // Each "path=value": of --set_file, then of --set.
  std::vector<std::string> sets() const;
};

struct KindFlags {
  static constexpr bool kInlined = true;
  std::optional<int64_t> threads;
  std::optional<std::string> device;
  FIELDS(About(threads,
               "threads to use, divided among the devices (default: the number of processors that "
               "the process may use; at most 256 or four times that number)",
               {.unit = "N", .min = 1}),
         About(device, "kind of device (default: cpu)", {.unit = "KIND"}))

  std::string kind() const { return device.value_or("cpu"); }
  int thread_count() const { return static_cast<int>(threads.value_or(0)); }  // 0: all.
  // Error for more threads than this machine may need.
  void check() const;
};

struct DeviceFlags {
  static constexpr bool kInlined = true;
  std::optional<int64_t> devices;
  KindFlags kind;
  FIELDS(About(devices,
               "devices of each process (default: 1). The mesh shape (ici_mesh_shape times "
               "dcn_mesh_shape) must have as many devices as all processes together; without a "
               "shape, all devices are on the axis `data`",
               {.unit = "N", .min = 1}),
         kind)

  int64_t count() const { return devices.value_or(1); }
  // Error for more than a process can have.
  void check() const;
};

struct DirectoryFlags {
  static constexpr bool kInlined = true;
  std::filesystem::path job_log_dir;
  FIELDS(About(job_log_dir,
               "the run's directory (default: runs/FAMILY.Name, with --smoke "
               "runs/FAMILY.Name.smoke)",
               {.unit = "DIR|URL"}))
};

// For commands that write a run.
struct ResumeFlags {
  static constexpr bool kInlined = true;
  bool restart = false;
  bool allow_config_change = false;
  bool allow_code_change = false;
  FIELDS(About(restart, "move the directory's earlier run aside and start again"),
         About(allow_config_change, "resume with a configuration that differs from the run's"),
         About(allow_code_change, "resume with code that computes a training step differently"))
};

struct DryRunFlags {
  static constexpr bool kInlined = true;
  bool dry_run = false;
  FIELDS(About(dry_run, "do everything but step, and write nothing"))
};

// For commands that run an experiment in its directory.
struct RunFlags {
  static constexpr bool kInlined = true;
  ExperimentFlags experiment;
  DeviceFlags devices;
  DirectoryFlags directory;
  DryRunFlags dry;
  FIELDS(experiment, devices, directory, dry)

  void check() const {
    experiment.check();
    devices.check();
  }
};

// For training, and for commands that print a training command or may be added to one.
struct TrainFlags {
  static constexpr bool kInlined = true;
  RunFlags flags;
  ResumeFlags resume;
  std::string checkpoint;
  std::optional<int64_t> inspect;
  std::string profile;
  std::optional<GraphStage> dump_graph;
  std::filesystem::path launch_costs;
  FIELDS(flags, resume,
         About(checkpoint, "auto-fallback: resume from the newest that is not damaged",
               {.unit = "auto-fallback"}),
         About(inspect,
               "print what layers inspect() in every N-th step: mean, deviation, extremes, shares "
               "of zeros and of values that are not finite (docs/layers.md)",
               {.min = 1}),
         About(profile,
               "time every kernel of N steps from step START on (trace.json.gz); default: steps 10 "
               "and 11 of a new run of at least 50 steps; off: none",
               {.unit = "START:N"}),
         About(dump_graph, "write the step's graph after this stage (text, DOT, SVG)"),
         About(launch_costs,
               "schedule overlapped collectives by what launches took in that run (its "
               "hardware.toml)",
               {.unit = "FILE"}))

  std::optional<ProfileWindow> profile_window() const;  // nullopt without, and with --profile=off.
  void check() const;
};

// Which checkpoints a command reads.
enum class CheckpointCount { kOne, kSeveral };
// "newest", a step's number or the name of its directory; where several are read also "all" and
// "follow". Error for anything else.
CheckpointChoice parse_checkpoint(const std::string& given, CheckpointCount count);

// For commands that read any number of checkpoints of the run.
struct CheckpointFlags {
  static constexpr bool kInlined = true;
  std::string checkpoint = "newest";
  FIELDS(About(checkpoint,
               "newest, a step (120 or step_0000000120), all, or follow, which reads each that a "
               "running job saves until it is done",
               {.unit = "WHICH"}))

  CheckpointChoice choice() const {
    return parse_checkpoint(checkpoint, CheckpointCount::kSeveral);
  }
};

// For commands that import or export weights.
struct FormatFlags {
  static constexpr bool kInlined = true;
  std::string format = "hf";
  FIELDS(About(format, "a Hugging Face directory (safetensors and config.json)", {.unit = "hf"}))

  // Error for another format.
  void check() const;
};

// The whole number of a part of a flag's value. Error if it is not one, or below `least`.
int64_t whole_number(std::string_view flag, std::string_view text, int64_t least);

// --hardware; Error for an unknown name. `reason`: why a command needs it if it is not given.
Hardware required_hardware(const std::string& given, std::string_view reason);
Hardware hardware_of(const std::string& given);

}  // namespace tessera
