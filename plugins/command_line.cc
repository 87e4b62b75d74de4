// SPDX-License-Identifier: Apache-2.0
#include "plugins/command_line.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/user_path.h"
#include "plugins/flags.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/config/set_file.h"

namespace tessera {
namespace {

constexpr const char* kSelfcheck = "selfcheck";  // A mode that runs no experiment.
constexpr const char* kSweep = "sweep";          // A mode whose trials are runs.
constexpr const char* kCalibrate = "calibrate";  // The same, or from the trace of a run.
constexpr const char* kReplay = "replay";        // A mode with options of its own.
constexpr int64_t kMostDevices = 1024;           // Of one process; each takes a thread or two.

RunMode parse_mode(const std::string& mode) {
  constexpr RunMode kModes[] = {RunMode::kTrain, RunMode::kEval,   RunMode::kDecode,
                                RunMode::kPlan,  RunMode::kExport, RunMode::kImport};
  if (mode == kReplay) return RunMode::kTrain;    // CommandLine::replay says the rest,
  if (mode == kCalibrate) return RunMode::kPlan;  // and CommandLine::refit.
  // The caller has handled the last two, and calibrate without a trace: they are actions.
  return kModes[index_in({"train", "eval", "decode", "plan", "export", "import", kReplay,
                          kCalibrate, kSelfcheck, kSweep},
                         "mode", mode)];
}

// A step's number, or the name of its directory.
CheckpointChoice parse_checkpoint(const std::string& given) {
  using Kind = CheckpointChoice::Kind;
  constexpr std::string_view kPrefix = "step_";
  if (given == "newest") return {};
  if (given == "all") return {Kind::kAll};
  if (given == "follow") return {Kind::kFollow};
  if (given == "auto-fallback") return {Kind::kAutoFallback};
  const std::string text = given.starts_with(kPrefix) ? given.substr(kPrefix.size()) : given;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    fail("--checkpoint={}: expected newest, all, follow, auto-fallback or a step's number{}", given,
         did_you_mean(text, {"newest", "all", "follow", "auto-fallback"}));
  return {Kind::kStep, whole_number("checkpoint", text, 0)};
}

std::optional<ProfileWindow> parse_profile(const std::string& text) {
  if (text == "off") return std::nullopt;
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    fail("--profile={}: expected START:N, such as 10:3, or off", text);
  return ProfileWindow{whole_number("profile", text.substr(0, colon), 0),
                       whole_number("profile", text.substr(colon + 1), 1)};
}

CommandLine::Action action_of(const Flags& flags) {
  using Action = CommandLine::Action;
  if (flags.has("help")) return Action::kHelp;
  if (flags.has("version")) return Action::kVersion;
  if (flags.has("list")) return Action::kList;
  if (flags.has("diff")) return Action::kDiff;
  if (flags.has("describe")) return Action::kDescribe;
  if (flags.has("report")) return Action::kReport;
  if (flags.has("compare")) return Action::kCompare;
  if (flags.has("watch")) return Action::kWatch;
  if (flags.text("mode") == kSelfcheck) return Action::kSelfcheck;
  if (flags.text("mode") == kCalibrate && !flags.has("trace")) return Action::kCalibrate;
  if (flags.text("mode") == kSweep) return Action::kSweep;
  return Action::kRun;
}

// Flags that only some modes read are mistakes in the others.
void check_flags_of_modes(const RunOptions& run, const Flags& flags) {
  const auto belongs = [&](std::initializer_list<const char*> names, std::string_view modes,
                           bool applies) {
    if (!applies) flags.need(fmt::format("--mode={}", modes), names);
  };
  const RunMode mode = run.mode;
  const bool moves = mode == RunMode::kExport || mode == RunMode::kImport;
  using Kind = CheckpointChoice::Kind;
  belongs({"prompt", "prompt_ids", "print_ids"}, "decode", mode == RunMode::kDecode);
  belongs({"format"}, "export or import", moves);
  belongs({"input"}, "import", mode == RunMode::kImport);
  belongs({"output"}, "export, plan or calibrate",
          mode == RunMode::kExport || mode == RunMode::kPlan);
  belongs({"dtype", "max_shard_bytes"}, "export", mode == RunMode::kExport);
  const bool calibrates = flags.text("mode") == kCalibrate;
  belongs({"hardware"}, "plan or calibrate", mode == RunMode::kPlan);
  belongs({"compare_plan"}, "plan", mode == RunMode::kPlan);
  belongs({"launch_costs"}, "train or plan", mode == RunMode::kTrain || mode == RunMode::kPlan);
  if (flags.has("hardware") && flags.has("device") && !calibrates)
    fail("--device cannot be used with --hardware, which names the device that is planned for");
  const bool falls_back = run.checkpoint.kind == Kind::kAutoFallback;
  if (falls_back && mode != RunMode::kTrain)
    fail("--checkpoint=auto-fallback needs --mode=train; give newest or a step's number");
  belongs({"inspect"}, "train", mode == RunMode::kTrain && flags.text("mode") != kReplay);
  belongs({"checkpoint"}, "eval, decode, export or replay (auto-fallback: train)",
          falls_back || flags.text("mode") == kReplay || mode == RunMode::kEval ||
              mode == RunMode::kDecode || mode == RunMode::kExport);
  const bool several = run.checkpoint.kind == Kind::kAll || run.checkpoint.kind == Kind::kFollow;
  if (several && mode != RunMode::kEval)
    fail("--checkpoint=all and follow need --mode=eval; give newest or a step's number");
  if (moves && run.format != "hf")
    fail("--format={}: expected hf, the only format of export and import", run.format);
  if (mode == RunMode::kImport && run.input.empty())
    fail("--mode=import reads a directory: give --input=DIR");
  if (mode == RunMode::kExport && run.output.empty())
    fail("--mode=export writes a directory: give --output=DIR");
}

// Actions without an experiment ("report", "mode=selfcheck") take these flags only.
void check_only(std::string_view action, const std::vector<std::string>& allowed,
                const Flags& flags) {
  std::string words;
  for (size_t i = 0; i < allowed.size(); ++i)
    words += fmt::format("{}--{}",
                         i == 0                    ? ""
                         : i + 1 == allowed.size() ? " and "
                                                   : ", ",
                         allowed[i]);
  const std::string own(action.substr(0, action.find('=')));
  for (const std::string& flag : flags.names())
    if (flag != own && std::find(allowed.begin(), allowed.end(), flag) == allowed.end())
      fail("--{} cannot be used with --{}{}", flag, action,
           words.empty() ? "" : ", which takes only " + words);
}

uint16_t parse_port(const std::string& text) {
  constexpr int64_t kMostPort = 65535;
  const int64_t port = whole_number("port", text, 0);
  if (port > kMostPort) fail("--port={}: expected a number up to {}", text, kMostPort);
  return static_cast<uint16_t>(port);
}

// Of the actions that know no experiment; returns whether the action is one of these.
bool is_checked_alone(CommandLine::Action action, const Flags& flags) {
  using Action = CommandLine::Action;
  if (action == Action::kSelfcheck)
    check_only("mode=selfcheck", {"threads", "device", "plugin_path"}, flags);
  else if (action == Action::kCalibrate)
    check_only("mode=calibrate", calibrate_flags(), flags);
  else if (action == Action::kReport)
    check_only("report", {}, flags);
  else if (action == Action::kCompare)
    check_only("compare", {"output"}, flags);
  else if (action == Action::kWatch)
    check_only("watch", {"port"}, flags);
  else
    return false;
  return true;
}

void check_together(const CommandLine& line, const Flags& flags) {
  using Action = CommandLine::Action;
  if (is_checked_alone(line.action, flags)) return;
  check_flags_of_modes(line.run, flags);
  flags.need("--watch=RUN", {"port"});
  const bool needs_experiment = line.action == Action::kRun || line.action == Action::kSweep ||
                                line.action == Action::kDescribe || line.action == Action::kDiff;
  if (flags.has("exp") && flags.has("config"))
    fail("--exp and --config both name an experiment: give one of them");
  if (flags.has("config") && line.smoke)
    fail("--smoke changes the knobs of an experiment, and --config has none: use --exp");
  if (needs_experiment && line.experiment.empty() && line.config.empty())
    fail(
        "no experiment is given: use --exp=FAMILY.Name; --list shows the experiments, --help the "
        "flags");
  if (line.run.devices > kMostDevices && line.run.mode != RunMode::kPlan)
    fail("--devices={}: a process drives at most {}; start more processes (mpirun, Slurm)",
         line.run.devices, kMostDevices);
}

// "new FOLDER"; Error if anything else is given.
CommandLine parse_new(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2 || arguments[1].empty() || arguments[1].starts_with("-"))
    fail("new takes the name of a project and nothing else: runexp new my_project");
  CommandLine line;
  line.action = CommandLine::Action::kNew;
  line.new_project = user_path(arguments[1], "new");
  return line;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "new") return parse_new(arguments);
  const bool asks_help = arguments.size() == 1 && (arguments[0] == "-h" || arguments[0] == "help");
  const Flags flags(asks_help ? std::vector<std::string>{"--help"} : arguments);
  const auto text = [&flags](const char* name) { return flags.text(name); };
  const auto has = [&flags](const char* name) { return flags.has(name); };
  CommandLine line;
  line.action = action_of(flags);
  line.experiment = text("exp");
  line.config = text("config");
  line.diff_with = text("diff");
  for (const std::string& file : flags.texts("set_file"))
    for (std::string& set : read_set_file(file)) line.sets.push_back(std::move(set));
  for (std::string& set : flags.texts("set")) line.sets.push_back(std::move(set));
  line.smoke = has("smoke");
  line.has_devices = has("devices");
  for (const std::string& place : flags.texts("plugin_path")) line.plugin_path.emplace_back(place);
  if (has("threads")) line.threads = parse_threads(text("threads"));
  if (const auto devices = flags.number("devices", 1)) line.run.devices = *devices;
  if (has("device")) line.device = text("device");
  if (has("mode") && line.action != CommandLine::Action::kSelfcheck &&
      line.action != CommandLine::Action::kCalibrate && line.action != CommandLine::Action::kSweep)
    line.run.mode = parse_mode(text("mode"));
  if (has("profile")) line.run.profile = parse_profile(text("profile"));
  line.traces_early_steps = !has("profile");
  if (const auto steps = flags.number("inspect", 1)) line.run.inspect_interval_steps = *steps;
  for (const char* flag : {"report", "watch"})
    if (has(flag)) line.runs.emplace_back(text(flag));
  for (const std::string& run : flags.texts("compare")) line.runs.emplace_back(run);
  if (has("port")) line.port = parse_port(text("port"));
  if (has("hardware")) line.run.hardware = find_hardware(text("hardware"), own_plugins("hardware"));
  line.run.compare_plan = text("compare_plan");
  line.run.dump_graph = text("dump_graph");
  if (has("dump_graph"))
    index_in({"trace", "remat", "lower", "fuse"}, "dump_graph", text("dump_graph"));
  if (has("checkpoint")) line.run.checkpoint = parse_checkpoint(text("checkpoint"));
  line.run.prompts = flags.texts("prompt");
  line.run.prompt_ids = flags.texts("prompt_ids");
  line.run.print_ids = has("print_ids");
  line.run.format = has("format") ? text("format") : "hf";
  line.run.input = text("input");
  line.run.output = text("output");
  if (has("dtype")) line.run.dtype = text("dtype");
  if (const auto bytes = flags.number("max_shard_bytes", 1)) line.run.max_shard_bytes = *bytes;
  line.run.job_log_dir = text("job_log_dir");
  line.run.restart = has("restart");
  line.run.allow_config_change = has("allow_config_change");
  line.run.allow_code_change = has("allow_code_change");
  line.run.dry_run = has("dry_run");
  line.sweep = parse_sweep(flags).value_or(SweepFlags{});
  line.search = parse_search(flags);
  if (line.search) {
    line.search->hardware = *line.run.hardware;
    line.search->hardware.launches.clear();  // docs/launch_costs.md#predictions
  }
  line.replay = parse_replay(flags);
  line.launch_costs = text("launch_costs");
  line.refit = parse_refit(flags, line.run.hardware);
  if (line.refit) line.run.hardware.reset();  // The program is that of the traced device.
  if (line.refit && line.experiment.empty() && line.config.empty())
    line.config = line.refit->trace.parent_path();
  check_together(line, flags);
  return line;
}

}  // namespace tessera
