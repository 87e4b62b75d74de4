// SPDX-License-Identifier: Apache-2.0
// The text of --help.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "core/runtime/executor/device_kinds.h"
#include "plugins/command_line.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/text.h"

namespace tessera {
namespace {

constexpr size_t kDescriptions = 25;  // The column at which descriptions of flags begin.

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
                         not depend on the number of threads (needs no --exp; under a minute);
                         calibrate: measure this machine's CPU and write a hardware file for
                         --hardware (needs no --exp; two minutes, with --smoke a rough one in
                         seconds; docs/hardware.md), or fit one to the --trace of a run
  --list                 list the experiments of all plugins
  --describe             print the experiment's knobs and configuration, and who set what
  --diff=OTHER           print how it differs from another experiment, a run's directory or its
                         hparams.toml
  --dry_run              do everything but step, and write nothing
  --report=RUN           write report.html of a run from the files in its directory; a run writes it
                         itself, too, now and then and at its end
  --compare RUN RUN ...  print the final metrics of runs and what differs in their configurations,
                         and write one page that overlays them (--output=FILE, or compare.html);
                         a folder, such as that of a sweep, stands for the runs in it
  --watch=RUN            serve the report on this machine, with new data while the run goes on,
                         until Ctrl-C; --port=N chooses the port

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
  --allow_code_change    resume with code that computes a training step differently
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
                         plan: also write the plan as JSON to this file; compare: the page;
                         calibrate: the hardware file (default: cpu.toml or --job_log_dir/cpu.toml),
                         which is replaced with --restart only
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
  --step=N               the step, as in metrics.jsonl; from the nearest checkpoint before it, or
                         from --checkpoint=STEP (0: the initial weights)
  --against=WHAT         threads:N, device:KIND, cpu_level:LEVEL or build:RUNEXP, which a second
                         process runs; or a recording. Names the first kernel that differs
  --tolerance=T          count floats as equal if they differ by less than T times the largest value
                         of the array (default: 0, compare bits)
  --isolate              give each launch the inputs of the other side, to check each on its own
  --record=FILE          write hashes of what each launch reads and writes, for --against=FILE
  --record_values=WHICH  also record the values themselves: outputs, or all (inputs, too)
  --find=nonfinite       name the first kernel that writes a NaN or an infinity, compare nothing
  --kernels_of=KIND      use only kernels that this kind of device has, too: the program that both
                         kinds run

Inspection
  --inspect=N            print what layers inspect() in every N-th step: mean, deviation, extremes,
                         shares of zeros and of values that are not finite (docs/layers.md)
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
  --search_state_dtype   search also with the optimizer's state in bf16, which changes what a run
                         computes
  --search_seconds=N     end after this time with what was found (default: 60)
  --goal=GOAL            what is best: time (default), cost (of a step) or memory (of a device)
  --trace=RUN            calibrate: the run, or its trace.json.gz, that --hardware is fitted to;
                         writes hardware.toml there, or to --job_log_dir (docs/launch_costs.md)
  --launch_costs=FILE    train, plan: schedule overlapped collectives by what launches took in that
                         run (its hardware.toml); plan --hardware: predict with it
  --compare_plan=OTHER   plan: print what changes since the plan.json of an earlier one, or of the
                         run in this directory: memory, bytes and time by line of layer code
  --profile=START:N      time every kernel of N steps from step START on (trace.json.gz); default:
                         steps 10 and 11 of a new run of at least 50 steps; off: none
  --version, --help

TESSERA_CPU_LEVEL=LEVEL in the environment makes the CPU device use a lower level of instructions
than the processor has: portable, avx2, avx512, avx512_bf16 or amx.

Exit codes: 0 done; 1 the run failed; 2 bad usage or configuration.
)";

}  // namespace

std::string help_text() {
  std::string text(kHelp);
  const auto fill = [&text](std::string_view place, const std::string& words) {
    text.replace(text.find(place), place.size(), words);
  };
  fill("{devices}", fmt::format("{}", fmt::join(known_device_kinds(), ", ")));
  const std::vector<std::string> hardware = hardware_names(own_plugins("hardware"));
  fill("{hardware}\n", wrapped(fmt::format("{}", fmt::join(hardware, ", ")), kDescriptions));
  return text;
}

}  // namespace tessera
