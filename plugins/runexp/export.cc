// SPDX-License-Identifier: Apache-2.0
// --mode=export: writes a run's weights in another tool's format.
#include "tasks/interop/export.h"

#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"

namespace tessera {
namespace {

struct ExportCommand {
  static constexpr CommandInfo kInfo{.mode = "export",
                                     .summary = "write weights in another tool's format"};
  RunFlags flags;
  std::string checkpoint = "newest";
  FormatFlags format;
  std::filesystem::path output;
  std::string family;
  std::string dtype = "f32";
  int64_t max_shard_bytes = 5'000'000'000;
  FIELDS(flags, About(checkpoint, "newest, or a step (120 or step_0000000120)", {.unit = "WHICH"}),
         format,
         About(output, "where to write it: a new or empty directory, or an earlier export",
               {.unit = "DIR|URL"}),
         About(family,
               "of transformers, as in config.json; default: that of the import, or the first that "
               "the model fits",
               {.unit = "MODEL_TYPE"}),
         About(dtype, "of the weights: f32, bf16, f16 or f64", {.unit = "DTYPE"}),
         About(max_shard_bytes, "weights in one file; more go to several, with an index",
               {.min = 1}))

  CheckpointChoice choice() const { return parse_checkpoint(checkpoint, CheckpointCount::kOne); }

  void check() const {
    flags.check();
    choice();
    format.check();
    if (output.empty()) fail("--mode=export writes a directory: give --output=DIR");
  }

  CommandResult run(const CommandContext& context) const {
    const ExportOptions options{.checkpoint = choice(),
                                .output = output,
                                .family = family,
                                .dtype = dtype,
                                .max_shard_bytes = max_shard_bytes};
    return run_mode({.flags = flags}, context, export_run, options);
  }
};

}  // namespace

std::unique_ptr<Command> export_command() { return command_of<ExportCommand>(); }

}  // namespace tessera
