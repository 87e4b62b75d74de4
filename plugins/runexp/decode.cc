// SPDX-License-Identifier: Apache-2.0
// --mode=decode: continues prompts, or documents of datasets.
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

struct Decode {
  static constexpr CommandInfo kInfo{.mode = "decode",
                                     .summary = "continue prompts, or a dataset's documents"};
  RunFlags flags;
  CheckpointFlags from;
  std::vector<std::string> prompt;
  std::vector<std::string> prompt_ids;
  bool print_ids = false;
  FIELDS(flags, from, About(prompt, "what to continue; may be repeated; '' starts a new text"),
         About(prompt_ids,
               "the same as token ids with spaces or commas between, for which no tokenizer is "
               "needed; may be repeated",
               {.unit = "IDS"}),
         About(print_ids, "print the ids of prompts and continuations, too"))

  void check() const {
    flags.check();
    from.choice();
  }

  CommandResult run(const CommandContext& context) const {
    const DecodeOptions options{.checkpoint = from.choice(),
                                .prompts = prompt,
                                .prompt_ids = prompt_ids,
                                .print_ids = print_ids};
    return check_printed(
        run_mode({.flags = flags, .reads_data = true}, context, decode_run, options));
  }
};

}  // namespace

std::unique_ptr<Command> decode_command() { return command_of<Decode>(); }

}  // namespace tessera
