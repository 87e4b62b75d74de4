// SPDX-License-Identifier: Apache-2.0
// Each pipeline schedule of the literature, for all small sizes: it is correct, and its ticks,
// bubbles and live activations are those of the papers' formulas.
#include "core/schedules/generators.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/schedules/table.h"
#include "core/schedules/timeline.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Sizes = std::function<void(int64_t stages, int64_t microbatches)>;

void for_all_sizes(const Sizes& action) {
  for (int64_t stages = 1; stages <= 8; ++stages)
    for (int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
      INFO("stages " << stages << ", microbatches " << microbatches);
      action(stages, microbatches);
    }
}

// The ticks in which a stage does nothing.
int64_t idle_ticks(const PipelineTable& table, int64_t stage) {
  return table.ticks() -
         std::count_if(table.tasks.begin(), table.tasks.end(),
                       [stage](const PipelineTask& task) { return task.stage == stage; });
}

// Ticks up to that of the last forward.
int64_t forward_ticks(const PipelineTable& table) {
  int64_t last = -1;
  for (const PipelineTask& task : table.tasks)
    if (task.work == PipelineWork::kForward) last = std::max(last, task.tick);
  return last + 1;
}

// The table is correct, has this many ticks and, in each stage, this many idle ticks; and its
// bounds of live activations are these and are reached.
void require_table(const PipelineTable& table, int64_t ticks, int64_t idle,
                   const std::function<int64_t(int64_t stage)>& live) {
  REQUIRE_NOTHROW(check_pipeline(table));
  REQUIRE(table.ticks() == ticks);
  std::vector<int64_t> expected_live;
  for (int64_t stage = 0; stage < table.stages; ++stage) {
    REQUIRE(idle_ticks(table, stage) == idle);
    expected_live.push_back(live(stage));
  }
  REQUIRE(table.live_bound == expected_live);
  REQUIRE(peak_live_activations(table) == expected_live);
}

TEST_CASE("GPipe takes M+S-1 ticks for the forward pass and holds M activations") {
  for_all_sizes([](int64_t s, int64_t m) {
    const PipelineTable table = gpipe_table(s, m);
    REQUIRE(forward_ticks(table) == m + s - 1);
    require_table(table, 2 * (m + s - 1), 2 * (s - 1), [m](int64_t) { return m; });
  });
}

TEST_CASE("1F1B takes as many ticks as GPipe and holds at most S-s activations in stage s") {
  for_all_sizes([](int64_t s, int64_t m) {
    require_table(one_forward_one_backward_table(s, m), 2 * (m + s - 1), 2 * (s - 1),
                  [s, m](int64_t stage) { return std::min(s - stage, m); });
  });
}

TEST_CASE("interleaved 1F1B has the bubble of 1F1B in shorter ticks") {
  for_all_sizes([](int64_t s, int64_t m) {
    for (int64_t r = 2; r <= 4 && m % s == 0; ++r)
      require_table(interleaved_table(s, m, r), 2 * (m * r + s - 1), 2 * (s - 1),
                    [s, m, r](int64_t stage) {
                      return std::min(2 * (s - 1 - stage) + (r - 1) * s + 1, m * r);
                    });
  });
}

TEST_CASE("the circular schedule takes Pax's M·R+S-1 ticks for the forward pass") {
  for_all_sizes([](int64_t s, int64_t m) {
    for (int64_t r = 1; r <= 4 && (r == 1 || m >= s); ++r) {
      const PipelineTable table = circular_table(s, m, r);
      REQUIRE(forward_ticks(table) == m * r + s - 1);
      require_table(table, 2 * (m * r + s - 1), 2 * (s - 1), [m, r](int64_t) { return m * r; });
    }
  });
}

TEST_CASE("ZB-H1 has a third of the bubble of 1F1B and the memory of its stage 0") {
  for_all_sizes([](int64_t s, int64_t m) {
    const PipelineTable table = zero_bubble_h1_table(s, m);
    const int64_t idle = m >= s ? s - 1 : 2 * s - 1 - m;
    require_table(table, 3 * m + idle, idle, [s, m](int64_t) { return std::min(s, m); });
    const PipelineTable other = one_forward_one_backward_table(s, m);
    REQUIRE(table.live_bound[0] == other.live_bound[0]);
    for (int64_t stage = 0; m >= s && stage < s; ++stage) {
      REQUIRE(pipeline_timeline(table, {}).idle(stage) == static_cast<double>(s - 1));
      REQUIRE(pipeline_timeline(other, {}).idle(stage) == static_cast<double>(3 * (s - 1)));
    }
  });
}

TEST_CASE("1F1B of four stages is the one of the paper") {
  REQUIRE(pipeline_text(one_forward_one_backward_table(4, 5)) ==
          "# 1F1B: 4 stages, 5 microbatches\n"
          "# tick    0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15\n"
          "stage 0: F0 F1 F2 F3  .  .  . B0 F4 B1  . B2  . B3  . B4\n"
          "stage 1:  . F0 F1 F2  .  . B0 F3 B1 F4 B2  . B3  . B4  .\n"
          "stage 2:  .  . F0 F1  . B0 F2 B1 F3 B2 F4 B3  . B4  .  .\n"
          "stage 3:  .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4  .  .  .\n");
}

TEST_CASE("ZB-H1 of two stages puts off the weights of stage 1") {
  REQUIRE(pipeline_text(zero_bubble_h1_table(2, 3)) ==
          "# ZB-H1: 2 stages, 3 microbatches\n"
          "# tick    0  1  2  3  4  5  6  7  8  9\n"
          "stage 0: F0 F1  . I0 W0 F2 I1 W1 I2 W2\n"
          "stage 1:  . F0 I0 F1 I1 W0 F2 I2 W1 W2\n");
}

TEST_CASE("a table of evaluation has every forward once, after what it needs") {
  for_all_sizes([](int64_t s, int64_t m) {
    for (int64_t r = 1; r <= 3; ++r) {
      const PipelineTable table = forward_table(s, m, r);
      REQUIRE(std::ssize(table.tasks) == s * m * r);
      if (r == 1 || m % s == 0) REQUIRE(table.ticks() == m * r + s - 1);
      const ValueMakers makers(table);
      std::set<std::pair<int64_t, int64_t>> slots, work;  // Stage and tick; piece and microbatch.
      for (const PipelineTask& task : table.tasks) {
        REQUIRE(task.work == PipelineWork::kForward);
        REQUIRE(slots.emplace(task.stage, task.tick).second);
        REQUIRE(work.emplace(table.piece(task), task.microbatch).second);
        for (const PipelineValue& value : needed_values(table, task)) {
          const int64_t maker = makers.maker(value);
          REQUIRE(maker != ValueMakers::kNobody);
          REQUIRE(table.tasks[static_cast<size_t>(maker)].tick < task.tick);
        }
      }
    }
  });
  REQUIRE(error_of([] { forward_table(2, 0, 1); }) ==
          "forward: microbatches is 0, expected at least 1");
}

TEST_CASE("in evaluation as many microbatches as stages go through all chunks at a time") {
  REQUIRE(pipeline_text(forward_table(2, 3, 2)) ==
          "# forward: 2 stages, 3 microbatches, 2 chunks per stage\n"
          "# tick      0    1    2    3    4    5    6    7\n"
          "stage 0:   F0   F1 F0.1 F1.1   F2    . F2.1    .\n"
          "stage 1:    .   F0   F1 F0.1 F1.1   F2    . F2.1\n");
}

TEST_CASE("a schedule refuses sizes that it cannot have") {
  REQUIRE(error_of([] { gpipe_table(0, 4); }) == "GPipe: stages is 0, expected at least 1");
  REQUIRE(error_of([] { one_forward_one_backward_table(4, 0); }) ==
          "1F1B: microbatches is 0, expected at least 1");
  REQUIRE(error_of([] { zero_bubble_h1_table(-1, 1); }) ==
          "ZB-H1: stages is -1, expected at least 1");
  REQUIRE(
      error_of([] { circular_table(2, 4, 16777216); }) ==
      "circular: stages=2 times chunks=16777216 times microbatches=4 is more than 4194304; lower "
      "chunks or microbatches");
  REQUIRE(error_of([] { gpipe_table(int64_t{1} << 40, int64_t{1} << 40); }) != "no error");
  REQUIRE(error_of([] { interleaved_table(4, 6, 2); }) ==
          "interleaved 1F1B: got microbatches=6, expected a multiple of stages=4, such as 8");
  REQUIRE(error_of([] { interleaved_table(4, 3, 2); }) ==
          "interleaved 1F1B: got microbatches=3, expected a multiple of stages=4, such as 4");
  REQUIRE(error_of([] { interleaved_table(4, 8, 1); }) ==
          "interleaved 1F1B: chunks is 1, expected at least 2; for one chunk per stage use 1F1B");
  REQUIRE(error_of([] { circular_table(4, 3, 2); }) ==
          "circular: got microbatches=3 for stages=4, expected at least as many; raise "
          "microbatches to 4");
}

}  // namespace
}  // namespace tessera
