// SPDX-License-Identifier: Apache-2.0
#include "plugins/mode_flags.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/graph/mesh.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostThreads = 256;  // Of a process on a small machine.
constexpr int64_t kMostSweepProcesses = 256;

// "64", "8,16,32" or "8..64", which doubles from 8 on.
std::vector<int64_t> parse_device_list(const std::string& text) {
  constexpr std::string_view kTo = "..";
  const auto number = [](std::string_view part) {
    const int64_t devices = whole_number("search_devices", part, 1);
    if (devices > kMaxDevices)
      fail("--search_devices={}: expected at most {} devices", part, kMaxDevices);
    return devices;
  };
  std::vector<int64_t> list;
  if (const size_t to = text.find(kTo); to != std::string::npos) {
    const int64_t first = number(text.substr(0, to)), last = number(text.substr(to + kTo.size()));
    if (first > last) fail("--search_devices={}: {} is more than {}", text, first, last);
    for (int64_t devices = first; devices <= last; devices *= 2) list.push_back(devices);
    return list;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const int64_t devices = number(text.substr(begin, end - begin));
    if (std::ranges::find(list, devices) == list.end()) list.push_back(devices);
    begin = end + 1;
  }
  return list;
}

template <typename Goal>
Goal parse_goal(const char* flag, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& row : enum_names(Goal{})) names.emplace_back(row.name);
  return enum_names(Goal{})[index_in(names, flag, text)].value;
}

fs::path find_trace(const std::string& given) {
  fs::path file = given;
  if (fs::is_directory(file)) file /= "trace.json.gz";
  if (!fs::is_regular_file(file))
    fail(
        "--trace={}: {} is not a file; expected a run's directory or its trace.json.gz, which new "
        "runs of at least 50 steps and --profile=START:N write",
        given, file.string());
  return file.has_parent_path() ? file : "." / file;
}

}  // namespace

// More threads than processors only wait for each other; a much larger number is a mistake.
int parse_threads(const std::string& text) {
  const int processors = usable_processors();
  const int64_t most = std::max<int64_t>(kMostThreads, 4 * int64_t{processors});
  const int64_t threads = whole_number("threads", text, 1);
  if (threads > most)
    fail("--threads={}: expected at most {}; this process may use {} processor{}", text, most,
         processors, processors == 1 ? "" : "s");
  return static_cast<int>(threads);
}

std::optional<ReplayOptions> parse_replay(const Flags& flags) {
  if (flags.text("mode") != "replay") {
    flags.need("--mode=replay", {"step", "against", "tolerance", "isolate", "record",
                                 "record_values", "kernels_of", "find"});
    return std::nullopt;
  }
  flags.refuse("--mode=replay", {"restart", "allow_config_change", "allow_code_change", "dry_run",
                                 "dump_graph", "profile", "launch_costs"});
  ReplayOptions replay;
  const auto step = flags.number("step", 1);
  if (!step) fail("--mode=replay needs the number of a step: --step=N");
  replay.step = *step;
  if (flags.has("find")) {
    index_in({"nonfinite"}, "find", flags.text("find"));
    flags.refuse("--find, which compares nothing",
                 {"against", "tolerance", "isolate", "record", "record_values", "kernels_of"});
    replay.finds_nonfinite = true;
  }
  if (flags.has("against")) replay.against = parse_other_side(flags.text("against"));
  using Side = OtherSideChoice::Kind;
  if (replay.against.kind == Side::kThreads) parse_threads(replay.against.value);
  if (replay.against.kind == Side::kNone)
    flags.need("something to compare with: give --against", {"tolerance", "isolate"});
  if (flags.has("tolerance")) replay.tolerance = parse_tolerance(flags.text("tolerance"));
  if (flags.has("isolate")) replay.inputs = LaunchInputs::kOther;
  replay.record = flags.text("record");
  if (flags.has("record") && replay.record.empty()) fail("--record needs the name of a file");
  if (replay.record.empty()) flags.need("a file: give --record=FILE", {"record_values"});
  if (flags.has("isolate")) flags.refuse("--isolate, which changes what launches read", {"record"});
  if (flags.has("record_values"))
    replay.values = parse_recorded_values(flags.text("record_values"));
  replay.kernels_of = flags.text("kernels_of");
  return replay;
}

std::optional<SearchOptions> parse_search(const Flags& flags) {
  if (!flags.has("search")) {
    flags.need("--search",
               {"goal", "search_devices", "search_slice", "search_seconds", "search_state_dtype"});
    return std::nullopt;
  }
  if (flags.text("mode") != "plan") flags.need("--mode=plan", {"search"});
  if (!flags.has("hardware"))
    fail(
        "--search predicts times on a device: give --hardware=NAME, one of {}, or a file "
        "(docs/hardware.md)",
        fmt::join(hardware_names(own_plugins("hardware")), ", "));
  if (flags.has("search_devices") && flags.has("devices"))
    fail("--devices and --search_devices both say how many devices there are: give one of them");
  flags.refuse("--search", {"compare_plan", "output", "smoke", "launch_costs"});
  SearchOptions search;
  if (flags.has("goal")) search.goal = parse_goal<SearchGoal>("goal", flags.text("goal"));
  if (flags.has("search_devices"))
    search.space.devices = parse_device_list(flags.text("search_devices"));
  if (const auto devices = flags.number("devices", 1)) search.space.devices = {*devices};
  if (const auto slice = flags.number("search_slice", 1)) search.space.slice = *slice;
  search.space.searches_state_dtype = flags.has("search_state_dtype");
  if (const auto seconds = flags.number("search_seconds", 1))
    search.seconds = static_cast<double>(*seconds);
  return search;
}

std::optional<SweepFlags> parse_sweep(const Flags& flags) {
  if (flags.text("mode") != "sweep") {
    flags.need("--mode=sweep", {"sweep", "sweep_processes", "sweep_trials", "sweep_seed",
                                "sweep_metric", "sweep_goal", "retry_failed"});
    return std::nullopt;
  }
  flags.refuse("--mode=sweep", {"checkpoint", "profile", "dump_graph", "launch_costs"},
               "; give it to one trial's own command");
  SweepFlags sweep;
  sweep.space = flags.texts("sweep");
  sweep.processes = flags.number("sweep_processes", 1).value_or(1);
  if (sweep.processes > kMostSweepProcesses)
    fail("--sweep_processes={}: expected at most {}", sweep.processes, kMostSweepProcesses);
  sweep.trials = flags.number("sweep_trials", 1);
  sweep.seed = flags.number("sweep_seed", 0);
  sweep.metric = flags.text("sweep_metric");
  if (flags.has("sweep_goal"))
    sweep.goal = parse_goal<SweepGoal>("sweep_goal", flags.text("sweep_goal"));
  sweep.retries_failed = flags.has("retry_failed");
  return sweep;
}

const std::vector<std::string>& calibrate_flags() {
  static const std::vector<std::string> kFlags = {"threads", "devices", "device", "plugin_path",
                                                  "output",  "restart", "smoke",  "job_log_dir"};
  return kFlags;
}

std::optional<RefitOptions> parse_refit(const Flags& flags,
                                        const std::optional<Hardware>& hardware) {
  if (flags.text("mode") != "calibrate") flags.need("--mode=calibrate", {"trace"});
  if (!flags.has("trace")) return std::nullopt;
  flags.refuse("--mode=calibrate --trace",
               {"restart", "allow_config_change", "allow_code_change", "dry_run", "dump_graph",
                "profile", "search", "compare_plan", "output", "launch_costs", "checkpoint"});
  if (!hardware)
    fail(
        "--mode=calibrate --trace starts from a hardware file, whose peaks it keeps: give "
        "--hardware=NAME, one of {}, or a file (docs/hardware.md)",
        fmt::join(hardware_names(own_plugins("hardware")), ", "));
  RefitOptions refit{.trace = find_trace(flags.text("trace")), .hardware = *hardware};
  refit.directory =
      flags.has("job_log_dir") ? fs::path(flags.text("job_log_dir")) : refit.trace.parent_path();
  return refit;
}

}  // namespace tessera
