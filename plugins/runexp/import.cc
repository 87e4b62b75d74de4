// SPDX-License-Identifier: Apache-2.0
// --mode=import: makes step 0 of a run from weights in another tool's format.
#include "tasks/interop/import.h"

#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"

namespace tessera {
namespace {

struct ImportCommand {
  static constexpr CommandInfo kInfo{.mode = "import",
                                     .summary = "read weights in another tool's format"};
  RunFlags flags;
  ResumeFlags resume;
  FormatFlags format;
  std::filesystem::path input;
  FIELDS(flags, resume, format,
         About(input, "where it is; it becomes step 0 of the run's directory", {.unit = "DIR|URL"}))

  void check() const {
    flags.check();
    format.check();
    if (input.empty()) fail("--mode=import reads a directory: give --input=DIR");
  }

  CommandResult run(const CommandContext& context) const {
    return run_mode({.flags = flags, .resume = resume, .writes = true}, context, import_run,
                    {input});
  }
};

}  // namespace

std::unique_ptr<Command> import_command() { return command_of<ImportCommand>(); }

}  // namespace tessera
