// SPDX-License-Identifier: Apache-2.0
// --mode=train, the default: its flags, from which other commands make the command of a training
// run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "plugins/runexp/command.h"
#include "plugins/runexp/flag_groups.h"
#include "tasks/run_directory/graph_drawing.h"

namespace tessera {

struct Train {
  static constexpr bool kInlined = true;  // In commands that take what a run takes.
  static constexpr CommandInfo kInfo{.mode = "train",
                                     .summary = "train, or resume where the run stopped (default)"};
  RunFlags flags;
  ResumeFlags resume;
  std::string checkpoint;
  std::optional<int64_t> inspect;
  std::string profile;
  std::optional<GraphStage> dump_graph;
  std::filesystem::path launch_costs;
  FIELDS(flags, resume,
         About(checkpoint, "auto-fallback: resume from the newest that is not damaged",
               {.unit = "auto-fallback"}),
         About(inspect,
               "print what layers inspect() in every N-th step: mean, deviation, extremes, shares "
               "of zeros and of values that are not finite (docs/layers.md)",
               {.min = 1}),
         About(profile,
               "time every kernel of N steps from step START on (trace.json.gz); default: steps 10 "
               "and 11 of a new run of at least 50 steps; off: none",
               {.unit = "START:N"}),
         About(dump_graph, "write the step's graph after this stage (text, DOT, SVG)"),
         About(launch_costs,
               "schedule overlapped collectives by what launches took in that run (its "
               "hardware.toml)",
               {.unit = "FILE"}))

  void check() const;
  Ending run(const CommandContext& context) const;
};

}  // namespace tessera
