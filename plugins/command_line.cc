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
                         selfcheck: check every kernel on this machine, and that a step's bits do
                         not depend on the number of threads (needs no --exp; under a minute)
  --list                 list the experiments of all plugins
  --describe             print the experiment's knobs and configuration, and who set what
  --diff=OTHER           print how it differs from another experiment, a run's directory or its
                         hparams.toml
  --dry_run              do everything but step, and write nothing

Settings
  --set PATH=VALUE       set a knob or a field; may be repeated
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
                         plan: also write the plan as JSON to this file
  --dtype=DTYPE          export: f32 (default), bf16, f16 or f64
  --max_shard_bytes=N    export: weights in one file (default: 5000000000); more go to several, with
                         an index

Replay (docs/replay.md)
  --step=N               the step, as in metrics.jsonl; from the nearest checkpoint before it, or
                         from --checkpoint=STEP (0: the initial weights)
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
  --compare_plan=OTHER   plan: print what changes since the plan.json of an earlier one, or of the
                         run in this directory: memory, bytes and time by line of layer code
  --profile=START:N      time every kernel of N steps from step START on (trace.json.gz)
  --version, --help

TESSERA_CPU_LEVEL=LEVEL in the environment makes the CPU device use a lower level of instructions
than the processor has: portable, avx2, avx512, avx512_bf16 or amx.

Exit codes: 0 done; 1 the run failed; 2 bad usage or configuration.
)";

using Words = std::vector<std::string>;

constexpr int64_t kMostThreads = 256;            // Of a process on a small machine.
constexpr const char* kSelfcheck = "selfcheck";  // A mode that runs no experiment.
constexpr const char* kReplay = "replay";        // A mode with options of its own.
constexpr int64_t kMostDevices = 1024;           // Of one process; each takes a thread or two.

options::options_description description() {
  options::options_description flags;
  const auto text = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::string>(), "");
  };
  const auto texts = [&flags](const char* name) {
    flags.add_options()(name, options::value<std::vector<std::string>>()->composing(), "");
  };
  const auto plain = [&flags](const char* name) { flags.add_options()(name, ""); };
  for (const char* name :
       {"exp",        "config",  "mode",       "job_log_dir", "devices",       "threads",
        "device",     "diff",    "dump_graph", "profile",     "hardware",      "compare_plan",
        "checkpoint", "format",  "input",      "output",      "dtype",         "max_shard_bytes",
        "step",       "against", "tolerance",  "record",      "record_values", "kernels_of"})
    text(name);
  for (const char* name : {"set", "plugin_path", "prompt", "prompt_ids"}) texts(name);
  for (const char* name : {"help", "version", "list", "describe", "restart", "allow_config_change",
                           "dry_run", "print_ids", "smoke", "isolate"})
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
  // The caller has handled selfcheck, which is an action (action_of).
  return kModes[index_in(
      {"train", "eval", "decode", "plan", "export", "import", kReplay, kSelfcheck}, "mode", mode)];
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

ProfileWindow parse_profile(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail("--profile={}: expected START:N, such as 10:3", text);
  return {whole_number("profile", text.substr(0, colon), 0),
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
  if (values.count("mode") != 0 && values["mode"].as<std::string>() == kSelfcheck)
    return Action::kSelfcheck;
  return Action::kRun;
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
  for (const char* flag : {"hardware", "compare_plan"})
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

void check_flags_of_selfcheck(const options::variables_map& values) {
  for (const auto& [flag, value] : values)
    if (flag != "mode" && flag != "threads" && flag != "device" && flag != "plugin_path")
      fail(
          "--{} cannot be used with --mode=selfcheck, which takes only --threads, --device and "
          "--plugin_path",
          flag);
}

void check_together(const CommandLine& line, const options::variables_map& values) {
  if (line.action == CommandLine::Action::kSelfcheck) return check_flags_of_selfcheck(values);
  check_flags_of_modes(line.run, values);
  check_flags_of_replay(line, values);
  const auto has = [&values](const char* flag) { return values.count(flag) != 0; };
  using Action = CommandLine::Action;
  const bool needs_experiment = line.action == Action::kRun || line.action == Action::kDescribe ||
                                line.action == Action::kDiff;
  if (has("exp") && has("config"))
    fail("--exp and --config both name an experiment: give one of them");
  if (has("config") && line.smoke)
    fail("--smoke changes the knobs of an experiment, and --config has none: use --exp");
  if (needs_experiment && line.experiment.empty() && line.config.empty())
    fail(
        "no experiment is given: use --exp=FAMILY.Name; --list shows the experiments, --help the "
        "flags");
  if (line.run.devices > kMostDevices)
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
  line.sets = texts("set");
  line.smoke = has("smoke");
  line.has_devices = has("devices");
  for (const std::string& place : texts("plugin_path")) line.plugin_path.emplace_back(place);
  if (has("threads")) line.threads = parse_threads(text("threads"));
  if (has("devices")) line.run.devices = whole_number("devices", text("devices"), 1);
  if (has("device")) line.device = text("device");
  if (has("mode") && text("mode") != kSelfcheck) line.run.mode = parse_mode(text("mode"));
  line.replay = parse_replay(values);
  if (has("profile")) line.run.profile = parse_profile(text("profile"));
  if (has("hardware")) line.run.hardware = find_hardware(text("hardware"), own_plugins("hardware"));
  line.run.compare_plan = text("compare_plan");
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
