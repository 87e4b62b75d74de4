// SPDX-License-Identifier: Apache-2.0
// The text form of a pipeline schedule, to write one by hand and to show one on a terminal:
//
//   # 1F1B: 2 stages, 3 microbatches
//   # tick    0  1  2  3  4  5  6  7
//   stage 0: F0 F1  . B0 F2 B1  . B2
//   stage 1:  . F0 B0 F1 B1 F2 B2  .
//
// One line is a stage, and one cell a tick: F, B, I or W (table.h) with the number of the
// microbatch, as in F2, and of the chunk unless it is 0, as in F2.1; or a dot for an idle tick. The
// words `stage 0:` may be left out. `#` starts a comment.
#pragma once

#include <string>
#include <string_view>

#include "core/schedules/table.h"

namespace tessera {

// Prints a table with at most one task per stage and tick, with aligned columns.
std::string pipeline_text(const PipelineTable& table);

// Parses a table. Lines count the stages; the largest numbers are those of the last microbatch and
// chunk. The schedule is not checked (check.h) and declares no live_bound. Error for text of
// another form, with the line and the column.
PipelineTable parse_pipeline(std::string_view name, std::string_view text);

}  // namespace tessera
