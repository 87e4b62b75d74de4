// SPDX-License-Identifier: Apache-2.0
// --mode=merge: the average of several checkpoints' weights.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/checkpoint_runs.h"

namespace tessera {
namespace {

struct Merge {
  static constexpr CommandInfo kInfo{.mode = "merge",
                                     .summary = "average the weights of checkpoints"};
  RunFlags flags;
  ResumeFlags resume;
  std::filesystem::path from;
  std::vector<int64_t> steps;
  std::optional<int64_t> last;
  std::vector<double> weights;
  FIELDS(flags, resume,
         About(from,
               "the run whose checkpoints are averaged; the result is step 0 of --job_log_dir",
               {.unit = "DIR|URL"}),
         About(steps, "which checkpoints; may be repeated", {.unit = "STEP", .min = 0}),
         About(last, "instead: this many of the newest", {.unit = "N", .min = 2}),
         About(weights, "the share of each, in their order; may be repeated (default: equal)",
               {.unit = "SHARE"}))

  void check() const {
    flags.check();
    if (from.empty()) fail("--mode=merge averages checkpoints of a run: give --from=DIR");
    if (steps.empty() == !last.has_value())
      fail("--mode=merge needs either --steps=STEP for each checkpoint, or --last=N");
  }

  CommandResult run(const CommandContext& context) const {
    const MergeOptions options{
        .from = from, .steps = steps, .last = last.value_or(0), .weights = weights};
    return run_mode({.flags = flags, .resume = resume, .writes = true}, context, merge_run,
                    options);
  }
};

}  // namespace

std::unique_ptr<Command> merge_command() { return command_of<Merge>(); }

}  // namespace tessera
