// SPDX-License-Identifier: Apache-2.0
// The memory that a plan uses at each launch, for blocks that are written by hand.
#include "tasks/planner/step_timeline.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("the memory at a launch is that of the blocks in use, and the gaps between them") {
  StepProgram step;
  step.persistent_bytes = 1024;
  for (int i = 0; i < 4; ++i) step.launches.push_back({});
  // A batch that is there all the time, a block of launches 0 to 1, and one above it of 1 to 2. 100
  // bytes take 128.
  step.blocks = {{.bytes = 64, .first = -1, .last = 4, .offset = 0},
                 {.bytes = 100, .first = 0, .last = 1, .offset = 64},
                 {.bytes = 256, .first = 1, .last = 2, .offset = 192},
                 {.bytes = 512, .first = 9, .last = -1, .offset = 0}};  // Never used.
  const std::vector<MemoryAt> curve = memory_curve(step);
  REQUIRE(curve.size() == 4);
  const int64_t used[] = {1024 + 192, 1024 + 448, 1024 + 320, 1024 + 64};
  const int64_t gaps[] = {0, 0, 128, 0};
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    REQUIRE(curve[i].used == used[i]);
    REQUIRE(curve[i].gaps == gaps[i]);
    REQUIRE(curve[i].bytes() == used[i] + gaps[i]);
  }
}

}  // namespace
}  // namespace tessera
