// SPDX-License-Identifier: Apache-2.0
#include "plugins/command_line.h"

#include <algorithm>
#include <array>
#include <optional>

#include <boost/program_options.hpp>
#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/config/set_file.h"
#include "tessera_stamp.h"

namespace tessera {
namespace {

namespace options = boost::program_options;

constexpr std::string_view kHelp = R"(Trains a language model that an experiment describes.

  runexp --exp=quickstart.SourceLm                      train it, or resume it where it stopped
  runexp --exp=SourceLm --set num_layers=6              any unique end of the name; change a knob
  runexp --exp=SourceLm --set task.train.seed=7         or any field of the configuration
  runexp --exp=SourceLm --devices=4 --set ici_mesh_shape=[1,2,2]
                                                        on a mesh of four: replica, data, mdl
  runexp --exp=SourceLm --mode=plan --hardware=h200     predict the speed on a GPU
  runexp --exp=c4.Spmd1B --smoke                        try a large one: the same, but tiny
  runexp --config=RUN --mode=replay --step=120 --against=threads:1
                                                        find the kernel that computes differently
  runexp --list                                         list the experiments
  runexp new my_project                                 create a plugin project of your own

Actions
  --exp=FAMILY.Name      the experiment
  --config=FILE          instead: the configuration in a run's hparams.toml, or in its directory;
                         --set changes its fields
  --mode=MODE            train (default); eval: score a checkpoint; decode: continue prompts or a
                         dataset's; plan: report what a step needs and costs without running it;
                         export, import: write or read weights in another tool's format;
                         replay: repeat a step of a run and compare what each kernel writes;
                         sweep: train it once for each of several settings (docs/sweeps.md);
                         selfcheck: check every kernel on this machine, and that a step's bits do
                         not depend on the number of threads (needs no --exp; under a minute)
  --list                 list the experiments of all plugins
  --describe             print the experiment's knobs and configuration, and who set what
  --diff=OTHER           print how it differs from another experiment, a run's directory or its
                         hparams.toml
  --dry_run              do everything but step, and write nothing
  --report=RUN           write report.html of a run from the files in its directory; a run writes it
                         itself, too, now and then and at its end
  --compare RUN RUN ...  print the final metrics of runs and what differs in their configurations,
                         and write one page that overlays them (--output=FILE, or compare.html)
  --watch=RUN            serve the report on this machine, with new data while the run goes on, until
                         Ctrl-C; --port=N chooses the port

Settings
  --set PATH=VALUE       set a knob or a field; may be repeated
  --set_file=FILE        the same from a file, such as the search.toml of --search, before --set
  --smoke                make the experiment small before --set: narrow, few layers, at most two
                         devices along each axis of its mesh, 5 steps, generated data; a few seconds
                         on CPU devices, as many as that mesh needs unless --devices is given
  --job_log_dir=DIR      the run's directory (default: runs/FAMILY.Name, with --smoke
                         runs/FAMILY.Name.smoke); plan: also write plan.txt and plan.json there
  --restart              move the directory's earlier run aside and start again
  --allow_config_change  resume with a configuration that differs from the run's
  --threads=N            threads to use, divided among the devices (default: the number of
                         processors that the process may use; at most 256 or four times that number)
  --device=KIND          kind of device: {devices} (default: cpu)
  --devices=N            devices of each process (default: 1). The mesh shape (ici_mesh_shape times
                         dcn_mesh_shape) must have as many devices as all processes together;
                         without a shape, all devices are on the axis `data`. Not needed for a plan,
                         and for a replay if the mesh has a shape
  --plugin_path=DIR      also look for plugins here; may be repeated (or TESSERA_PLUGIN_PATH=A:B)

Checkpoints and files
  --checkpoint=WHICH     eval, decode, export: newest (default), or a step (120 or
                         step_0000000120); eval also: all, or follow, which scores each that a
                         running job saves until it is done; train: auto-fallback resumes from the
                         newest that is not damaged
  --prompt=TEXT          decode: what to continue; may be repeated; '' starts a new text
  --prompt_ids=IDS       decode: the same as token ids with spaces or commas between, for which no
                         tokenizer is needed; may be repeated
  --print_ids            decode: print the ids of prompts and continuations, too
  --format=hf            export, import: a Hugging Face directory (safetensors and config.json)
  --input=DIR            import: where it is; it becomes step 0 of the run's directory
  --output=PATH          export: where to write it: a new or empty directory, or an earlier export;
                         plan: also write the plan as JSON to this file; compare: the page
  --dtype=DTYPE          export: f32 (default), bf16, f16 or f64
  --max_shard_bytes=N    export: weights in one file (default: 5000000000); more go to several, with
                         an index

Sweeps
  --sweep=PATH=VALUES    vary a knob or a field, in place of the experiment's search(): 1e-3,3e-4 or
                         1..3 or uniform(0,1), log_uniform(1e-4,1e-2), uniform_integer(2,8); may be
                         repeated; or --sweep=FILE, a sweep.toml
  --sweep_processes=N    trials that run at the same time, which share the threads (default: 1)
  --sweep_trials=K       draw K trials; without it, a grid: every combination of the values
  --sweep_seed=S         of the draws (default: 0)
  --sweep_metric=NAME    a metric of the runs by which trials are compared (default: the loss of
                         evaluation, or else of training), as --sweep_goal=min or max says
  --retry_failed         resume the trials that failed, too

Replay (docs/replay.md)
  --step=N               the step, as in metrics.jsonl; from the nearest checkpoint before it, or from
                         --checkpoint=STEP (0: the initial weights)
  --against=WHAT         threads:N, device:KIND, cpu_level:LEVEL or build:RUNEXP, which a second
                         process runs; or a recording. Names the first kernel that differs
  --tolerance=T          count floats as equal if they differ by less than T times the largest value
                         of the array (default: 0, compare bits)
  --isolate              give each launch the inputs of the other side, to check each on its own
  --record=FILE          write hashes of what each launch reads and writes, for --against=FILE
  --record_values=WHICH  also record the values themselves: outputs, or all (inputs, too)
  --kernels_of=KIND      use only kernels that this kind of device has, too: the program that both
                         kinds run

Inspection
  --dump_graph=STAGE     write the step's graph after trace, remat, lower or fuse (text, DOT, SVG)
  --hardware=WHICH       plan: predict the time of each launch of a step, tokens per second and MFU
                         on this device, without it: a TOML file of yours (docs/hardware.md), or
                         {hardware}
  --search               plan: find the mesh, rules, pipeline schedule, number of microbatches and
                         remat policy whose step is best on --hardware, with the recipe's model and
                         global batch; --job_log_dir gets search.toml, search.json and search.svg
  --search_devices=LIST  for these numbers of devices: 64, 8,16,32 or 8..64, which doubles
                         (default: --devices, else as many as the recipe's mesh has)
  --search_slice=N       devices with fast links to each other (default: as the recipe's mesh)
  --search_seconds=N     end after this time with what was found (default: 60)
  --goal=GOAL            what is best: time (default), cost (of a step) or memory (of a device)
  --compare_plan=OTHER   plan: print what changes since the plan.json of an earlier one, or of the
                         run in this directory: memory, bytes and time by line of layer code
  --profile=START:N      time every kernel of N steps from step START on (trace.json.gz); default:
                         steps 10 and 11 of a new run of at least 50 steps; off: none
  --version, --help

TESSERA_CPU_LEVEL=LEVEL in the environment makes the CPU device use a lower level of instructions
than the processor has: portable, avx2, avx512, avx512_bf16 or amx.

Exit codes: 0 done; 1 the run failed; 2 bad usage or configuration.
)";

using Words = std::vector<std::string>;

constexpr int64_t kMostThreads = 256;            // Of a process on a small machine.
constexpr const char* kSelfcheck = "selfcheck";  // A mode that runs no experiment.
constexpr const char* kSweep = "sweep";          // A mode whose trials are runs.
constexpr const char* kReplay = "replay";        // A mode with options of its own.
constexpr int64_t kMostDevices = 1024;           // Of one process; each takes a thread or two.
constexpr int64_t kMostSweepProcesses = 256;

options::options_description description() {
  options::options_description flags;
  const auto text = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::string>(), "");
  };
  const auto texts = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::vector<std::string>>()->composing(), "");
  };
  const auto plain = [&flags](const char* name) { flags.add_options()(name, ""); };
  for (const char* name : {"exp",          "config",          "mode",          "job_log_dir",
                           "devices",      "threads",         "device",        "diff",
                           "dump_graph",   "profile",         "hardware",      "compare_plan",
                           "checkpoint",   "format",          "input",         "output",
                           "dtype",        "max_shard_bytes", "report",        "watch",
                           "port",         "sweep_processes", "sweep_trials",  "sweep_seed",
                           "sweep_metric", "sweep_goal",      "goal",          "search_devices",
                           "search_slice", "search_seconds",  "step",          "against",
                           "tolerance",    "record",          "record_values", "kernels_of"})
    text(name);
  flags.add_options()("compare",
                      options::value<std::vector<std::string>>()->multitoken()->composing(), "");
  for (const char* name : {"set", "set_file", "plugin_path", "prompt", "prompt_ids", "sweep"})
    texts(name);
  for (const char* name : {"help", "version", "list", "describe", "restart", "allow_config_change",
                           "dry_run", "print_ids", "smoke", "retry_failed", "search", "isolate"})
    plain(name);
  return flags;
}

options::variables_map parse_flags(const std::vector<std::string>& arguments) {
  const options::options_description flags = description();
  options::positional_options_description nothing;
  options::variables_map values;
  // The library takes "--prompt=" for a flag without a value.
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument == "--prompt=";
    words.push_back(is_empty ? "--prompt" : argument);
    if (is_empty) words.emplace_back();
  }
  try {
    // No short flags and no guessing: an abbreviation would change its meaning as flags are added.
    const int style = options::command_line_style::allow_long |
                      options::command_line_style::long_allow_adjacent |
                      options::command_line_style::long_allow_next;
    options::store(
        options::command_line_parser(words).options(flags).positional(nothing).style(style).run(),
        values);
  } catch (const options::unknown_option& error) {
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    name.erase(std::min(name.find('='), name.size()));
    std::vector<std::string> names;
    for (const auto& flag : flags.options()) names.push_back(flag->long_name());
    const std::string near = nearest(name, names);
    fail("unknown flag --{}{}", name,
         near.empty() ? "; --help lists them" : fmt::format("; did you mean --{}?", near));
  } catch (const options::multiple_occurrences& error) {
    fail("{} is given more than once", error.get_option_name());
  } catch (const options::too_many_positional_options_error&) {
    const auto stray =
        std::find_if(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return !word.starts_with("--"); });
    const std::string word = stray == arguments.end() ? "argument" : *stray;
    fail("'{}' is not a flag{}", word,
         word.find('=') == std::string::npos ? "; --help lists them"
                                             : fmt::format("; did you mean --set {}?", word));
  } catch (const options::invalid_command_line_syntax& error) {
    const std::string name = error.get_option_name();
    if (error.kind() == options::invalid_command_line_syntax::extra_parameter)
      fail("{} takes no value", name);
    fail("{} needs a value; --help says which", name);
  } catch (const options::error& error) {
    fail("{}", error.what());
  }
  return values;
}

int64_t whole_number(std::string_view flag, std::string_view text, int64_t least) {
  const std::optional<int64_t> value = parse_integer(text);
  if (!value || *value < least)
    fail("--{}={}: expected a whole number, {} or more", flag, text, least);
  return *value;
}

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

// The index of the value among `names`; Error if it is not one of them.
size_t index_in(const std::vector<std::string>& names, std::string_view flag,
                const std::string& value) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end())
    fail("--{}={}: expected one of {}{}", flag, value, fmt::join(names, ", "),
         did_you_mean(value, names));
  return static_cast<size_t>(found - names.begin());
}

RunMode parse_mode(const std::string& mode) {
  constexpr RunMode kModes[] = {RunMode::kTrain, RunMode::kEval,   RunMode::kDecode,
                                RunMode::kPlan,  RunMode::kExport, RunMode::kImport};
  if (mode == kReplay) return RunMode::kTrain;  // CommandLine::replay says the rest.
  // The caller has handled the last two, which are actions (action_of).
  return kModes[index_in(
      {"train", "eval", "decode", "plan", "export", "import", kReplay, kSelfcheck, kSweep}, "mode",
      mode)];
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

// The options of --mode=replay; nullopt in other modes.
std::optional<ReplayOptions> parse_replay(const options::variables_map& values) {
  const auto text = [&values](const char* name) {
    return values.count(name) == 0 ? std::string() : values[name].as<std::string>();
  };
  const auto has = [&values](const char* name) { return values.count(name) != 0; };
  if (text("mode") != kReplay) return std::nullopt;
  ReplayOptions replay;
  if (has("step")) replay.step = whole_number("step", text("step"), 1);
  if (has("against")) replay.against = parse_other_side(text("against"));
  if (replay.against.kind == OtherSideChoice::Kind::kThreads) parse_threads(replay.against.value);
  if (has("tolerance")) replay.tolerance = parse_tolerance(text("tolerance"));
  if (has("isolate")) replay.inputs = LaunchInputs::kOther;
  replay.record = text("record");
  if (has("record") && replay.record.empty()) fail("--record needs the name of a file");
  if (has("record_values")) replay.values = parse_recorded_values(text("record_values"));
  replay.kernels_of = text("kernels_of");
  return replay;
}

CommandLine::Action action_of(const options::variables_map& values) {
  using Action = CommandLine::Action;
  if (values.count("help") != 0) return Action::kHelp;
  if (values.count("version") != 0) return Action::kVersion;
  if (values.count("list") != 0) return Action::kList;
  if (values.count("diff") != 0) return Action::kDiff;
  if (values.count("describe") != 0) return Action::kDescribe;
  if (values.count("report") != 0) return Action::kReport;
  if (values.count("compare") != 0) return Action::kCompare;
  if (values.count("watch") != 0) return Action::kWatch;
  const std::string mode = values.count("mode") == 0 ? "" : values["mode"].as<std::string>();
  if (mode == kSelfcheck) return Action::kSelfcheck;
  if (mode == kSweep) return Action::kSweep;
  return Action::kRun;
}

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

SearchGoal parse_goal(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& row : enum_names(SearchGoal{})) names.emplace_back(row.name);
  return enum_names(SearchGoal{})[index_in(names, "goal", text)].value;
}

// Error for flags of --search without it.
std::optional<SearchOptions> parse_search(const options::variables_map& values) {
  const auto text = [&values](const char* flag) { return values[flag].as<std::string>(); };
  const auto has = [&values](const char* flag) { return values.count(flag) != 0; };
  if (!has("search")) {
    for (const char* flag : {"goal", "search_devices", "search_slice", "search_seconds"})
      if (has(flag)) fail("--{} needs --search", flag);
    return std::nullopt;
  }
  if (!has("hardware"))
    fail(
        "--search predicts times on a device: give --hardware=NAME, one of {}, or a file "
        "(docs/hardware.md)",
        fmt::join(hardware_names(own_plugins("hardware")), ", "));
  if (has("search_devices") && has("devices"))
    fail("--devices and --search_devices both say how many devices there are: give one of them");
  for (const char* flag : {"compare_plan", "output", "smoke"})
    if (has(flag)) fail("--{} cannot be used with --search", flag);
  SearchOptions search;
  if (has("goal")) search.goal = parse_goal(text("goal"));
  if (has("search_devices")) search.space.devices = parse_device_list(text("search_devices"));
  if (has("devices")) search.space.devices = {whole_number("devices", text("devices"), 1)};
  if (has("search_slice"))
    search.space.slice = whole_number("search_slice", text("search_slice"), 1);
  if (has("search_seconds"))
    search.seconds = static_cast<double>(whole_number("search_seconds", text("search_seconds"), 1));
  return search;
}

// Flags that only some modes read are mistakes in the others.
void check_flags_of_modes(const RunOptions& run, const options::variables_map& values) {
  const auto belongs = [&](const char* flag, std::string_view modes, bool applies) {
    if (values.count(flag) != 0 && !applies) fail("--{} needs --mode={}", flag, modes);
  };
  const RunMode mode = run.mode;
  const bool moves = mode == RunMode::kExport || mode == RunMode::kImport;
  using Kind = CheckpointChoice::Kind;
  for (const char* flag : {"prompt", "prompt_ids", "print_ids"})
    belongs(flag, "decode", mode == RunMode::kDecode);
  belongs("format", "export or import", moves);
  belongs("input", "import", mode == RunMode::kImport);
  belongs("output", "export or plan", mode == RunMode::kExport || mode == RunMode::kPlan);
  for (const char* flag : {"dtype", "max_shard_bytes"})
    belongs(flag, "export", mode == RunMode::kExport);
  for (const char* flag : {"hardware", "compare_plan", "search"})
    belongs(flag, "plan", mode == RunMode::kPlan);
  if (values.count("hardware") != 0 && values.count("device") != 0)
    fail("--device cannot be used with --hardware, which names the device that is planned for");
  const bool falls_back = run.checkpoint.kind == Kind::kAutoFallback;
  if (falls_back && mode != RunMode::kTrain)
    fail("--checkpoint=auto-fallback needs --mode=train; give newest or a step's number");
  const bool replays = values.count("mode") != 0 && values["mode"].as<std::string>() == kReplay;
  belongs("checkpoint", "eval, decode, export or replay (auto-fallback: train)",
          falls_back || replays || mode == RunMode::kEval || mode == RunMode::kDecode ||
              mode == RunMode::kExport);
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

// Other modes read none of these flags, and a replay few of the others.
void check_flags_of_replay(const CommandLine& line, const options::variables_map& values) {
  constexpr std::array kOwn = {"step",   "against",       "tolerance", "isolate",
                               "record", "record_values", "kernels_of"};
  if (!line.replay) {
    for (const char* flag : kOwn)
      if (values.count(flag) != 0) fail("--{} needs --mode=replay", flag);
    return;
  }
  for (const char* flag : {"restart", "allow_config_change", "dry_run", "dump_graph", "profile"})
    if (values.count(flag) != 0) fail("--{} cannot be used with --mode=replay", flag);
  if (values.count("step") == 0) fail("--mode=replay needs the number of a step: --step=N");
  const ReplayOptions& replay = *line.replay;
  using Side = OtherSideChoice::Kind;
  for (const char* flag : {"tolerance", "isolate"})
    if (values.count(flag) != 0 && replay.against.kind == Side::kNone)
      fail("--{} needs something to compare with: give --against", flag);
  if (values.count("record_values") != 0 && replay.record.empty())
    fail("--record_values needs a file: give --record=FILE");
  if (!replay.record.empty() && replay.inputs == LaunchInputs::kOther)
    fail("--record cannot be used with --isolate, which changes what launches read");
}

// Actions without an experiment ("report", "mode=selfcheck") take these flags only.
void check_only(std::string_view action, const std::vector<std::string>& allowed,
                const options::variables_map& values) {
  std::string words;
  for (size_t i = 0; i < allowed.size(); ++i)
    words += fmt::format("{}--{}",
                         i == 0                    ? ""
                         : i + 1 == allowed.size() ? " and "
                                                   : ", ",
                         allowed[i]);
  const std::string_view own = action.substr(0, action.find('='));
  for (const auto& [flag, value] : values)
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

// Flags of other modes, and those that only one run can have.
void check_flags_of_sweep(const options::variables_map& values) {
  for (const char* flag : {"checkpoint", "profile", "dump_graph"})
    if (values.count(flag) != 0)
      fail("--{} cannot be used with --mode=sweep; give it to one trial's own command", flag);
}

SweepFlags parse_sweep_flags(const options::variables_map& values) {
  SweepFlags flags;
  const auto number = [&values](const char* flag, int64_t least) -> std::optional<int64_t> {
    if (values.count(flag) == 0) return std::nullopt;
    return whole_number(flag, values[flag].as<std::string>(), least);
  };
  if (values.count("sweep") != 0) flags.space = values["sweep"].as<Words>();
  flags.processes = number("sweep_processes", 1).value_or(1);
  if (flags.processes > kMostSweepProcesses)
    fail("--sweep_processes={}: expected at most {}", flags.processes, kMostSweepProcesses);
  flags.trials = number("sweep_trials", 1);
  flags.seed = number("sweep_seed", 0);
  if (values.count("sweep_metric") != 0) flags.metric = values["sweep_metric"].as<std::string>();
  if (values.count("sweep_goal") != 0)
    flags.goal = index_in({"min", "max"}, "sweep_goal", values["sweep_goal"].as<std::string>()) == 0
                     ? SweepGoal::kMin
                     : SweepGoal::kMax;
  flags.retries_failed = values.count("retry_failed") != 0;
  return flags;
}

void check_together(const CommandLine& line, const options::variables_map& values) {
  using Action = CommandLine::Action;
  if (line.action == Action::kSelfcheck)
    return check_only("mode=selfcheck", {"threads", "device", "plugin_path"}, values);
  if (line.action == Action::kReport) return check_only("report", {}, values);
  if (line.action == Action::kCompare) return check_only("compare", {"output"}, values);
  if (line.action == Action::kWatch) return check_only("watch", {"port"}, values);
  check_flags_of_modes(line.run, values);
  check_flags_of_replay(line, values);
  const auto has = [&values](const char* flag) { return values.count(flag) != 0; };
  if (has("port")) fail("--port needs --watch=RUN");
  if (line.action == Action::kSweep) check_flags_of_sweep(values);
  for (const char* flag : {"sweep", "sweep_processes", "sweep_trials", "sweep_seed", "sweep_metric",
                           "sweep_goal", "retry_failed"})
    if (has(flag) && line.action != Action::kSweep) fail("--{} needs --mode=sweep", flag);
  const bool needs_experiment = line.action == Action::kRun || line.action == Action::kSweep ||
                                line.action == Action::kDescribe || line.action == Action::kDiff;
  if (has("exp") && has("config"))
    fail("--exp and --config both name an experiment: give one of them");
  if (has("config") && line.smoke)
    fail("--smoke changes the knobs of an experiment, and --config has none: use --exp");
  if (needs_experiment && line.experiment.empty() && line.config.empty())
    fail(
        "no experiment is given: use --exp=FAMILY.Name; --list shows the experiments, --help the "
        "flags");
  if (line.run.devices > kMostDevices && !line.search)
    fail("--devices={}: a process drives at most {}; start more processes (mpirun, Slurm)",
         line.run.devices, kMostDevices);
}

// "new FOLDER"; Error if anything else is given.
CommandLine parse_new(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2 || arguments[1].empty() || arguments[1].starts_with("-"))
    fail("new takes the name of a project and nothing else: runexp new my_project");
  CommandLine line;
  line.action = CommandLine::Action::kNew;
  line.new_project = arguments[1];
  return line;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "new") return parse_new(arguments);
  const options::variables_map values = parse_flags(arguments);
  const auto text = [&values](const char* name) {
    return values.count(name) == 0 ? std::string() : values[name].as<std::string>();
  };
  const auto texts = [&values](const char* name) {
    return values.count(name) == 0 ? Words() : values[name].as<Words>();
  };
  const auto has = [&values](const char* name) { return values.count(name) != 0; };
  CommandLine line;
  line.action = action_of(values);
  line.experiment = text("exp");
  line.config = text("config");
  line.diff_with = text("diff");
  for (const std::string& file : texts("set_file"))
    for (std::string& set : read_set_file(file)) line.sets.push_back(std::move(set));
  for (std::string& set : texts("set")) line.sets.push_back(std::move(set));
  line.sweep = parse_sweep_flags(values);
  line.smoke = has("smoke");
  line.has_devices = has("devices");
  for (const std::string& place : texts("plugin_path")) line.plugin_path.emplace_back(place);
  if (has("threads")) line.threads = parse_threads(text("threads"));
  if (has("devices")) line.run.devices = whole_number("devices", text("devices"), 1);
  if (has("device")) line.device = text("device");
  if (has("mode") && text("mode") != kSelfcheck && text("mode") != kSweep)
    line.run.mode = parse_mode(text("mode"));
  line.replay = parse_replay(values);
  if (has("profile")) line.run.profile = parse_profile(text("profile"));
  line.traces_early_steps = !has("profile");
  for (const char* flag : {"report", "watch"})
    if (has(flag)) line.runs.emplace_back(text(flag));
  for (const std::string& run : texts("compare")) line.runs.emplace_back(run);
  if (has("port")) line.port = parse_port(text("port"));
  if (has("hardware")) line.run.hardware = find_hardware(text("hardware"), own_plugins("hardware"));
  line.run.compare_plan = text("compare_plan");
  line.search = parse_search(values);
  if (line.search) line.search->hardware = *line.run.hardware;
  line.run.dump_graph = text("dump_graph");
  if (has("dump_graph"))
    index_in({"trace", "remat", "lower", "fuse"}, "dump_graph", text("dump_graph"));
  if (has("checkpoint")) line.run.checkpoint = parse_checkpoint(text("checkpoint"));
  line.run.prompts = texts("prompt");
  line.run.prompt_ids = texts("prompt_ids");
  line.run.print_ids = has("print_ids");
  line.run.format = has("format") ? text("format") : "hf";
  line.run.input = text("input");
  line.run.output = text("output");
  if (has("dtype")) line.run.dtype = text("dtype");
  if (has("max_shard_bytes"))
    line.run.max_shard_bytes = whole_number("max_shard_bytes", text("max_shard_bytes"), 1);
  line.run.job_log_dir = text("job_log_dir");
  line.run.restart = has("restart");
  line.run.allow_config_change = has("allow_config_change");
  line.run.dry_run = has("dry_run");
  check_together(line, values);
  return line;
}

std::string help_text() {
  std::string text(kHelp);
  const auto fill = [&text](std::string_view place, const std::string& words) {
    text.replace(text.find(place), place.size(), words);
  };
  fill("{devices}", fmt::format("{}", fmt::join(known_device_kinds(), ", ")));
  fill("{hardware}", fmt::format("{}", fmt::join(hardware_names(own_plugins("hardware")), ", ")));
  return text;
}

}  // namespace tessera
