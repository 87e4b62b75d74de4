// SPDX-License-Identifier: Apache-2.0
// --mode=score: log-likelihoods of given continuations.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

struct Score {
  static constexpr CommandInfo kInfo{.mode = "score",
                                     .summary = "log-likelihoods of given continuations"};
  RunFlags flags;
  CheckpointFlags from;
  std::filesystem::path requests;
  std::filesystem::path output;
  int64_t batch_tokens = 0;
  bool log_probs = false;
  FIELDS(flags, from,
         About(requests,
               "what to score: on each line {\"context\": …, \"continuation\": …}, or ids in "
               "context_ids and continuation_ids (docs/evaluation.md)",
               {.unit = "FILE|URL"}),
         About(output, "the scores, a line for each request (default: score_out/ of the run)",
               {.unit = "FILE"}),
         About(batch_tokens,
               "tokens scored at once, padding included, on all devices (default: those of a "
               "training batch, at most 8192 for each part of a batch)",
               {.unit = "N", .min = 0}),
         About(log_probs, "write the log-probability of each token, too"))

  void check() const {
    flags.check();
    const CheckpointChoice choice = from.choice();
    const bool is_one = choice.kind == CheckpointChoice::Kind::kNewest ||
                        choice.kind == CheckpointChoice::Kind::kStep;
    if (!output.empty() && !is_one)
      fail("--output names one file, but --checkpoint={} may have several scores; leave it out",
           from.checkpoint);
    if (requests.empty())
      fail("--mode=score needs --requests=FILE, with a request on each line (docs/evaluation.md)");
  }

  CommandResult run(const CommandContext& context) const {
    const ScoringOptions options{.checkpoint = from.choice(),
                                 .requests = requests,
                                 .output = output,
                                 .batch_tokens = batch_tokens,
                                 .with_log_probs = log_probs};
    return run_mode({.flags = flags, .reads_data = false}, context, score_run, options);
  }
};

}  // namespace

std::unique_ptr<Command> score_command() { return command_of<Score>(); }

}  // namespace tessera
