// SPDX-License-Identifier: Apache-2.0
// Times of pipeline schedules, against closed forms and small cases computed by hand.
#include "core/schedules/timeline.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

// (stage, cause, waits_for, start, end) of each bubble.
using Row = std::tuple<int64_t, BubbleCause, int64_t, double, double>;
std::vector<Row> rows(const PipelineTimeline& timeline) {
  std::vector<Row> all;
  for (const Bubble& b : timeline.bubbles)
    all.emplace_back(b.stage, b.cause, b.waits_for, b.start, b.end);
  return all;
}

TEST_CASE("the bubbles of a small pipeline are those computed by hand") {
  // Stage 0: F0 0-2, F1 2-4, waits, B0 12-15, waits, B1 20-23.
  // Stage 1: waits, F0 3-7 (one unit after its input is sent), B0 7-11, F1 11-15, B1 15-19.
  const PipelineTable table = parse_pipeline("mine", "F0 F1 . B0 . B1\n. F0 B0 F1 B1");
  const PipelineTimeline timeline =
      pipeline_timeline(table, {.pieces = {{2, 2, 1}, {4, 1, 3}}, .send = 1});
  REQUIRE(timeline.finish == 23.0);
  REQUIRE(rows(timeline) == std::vector<Row>{{0, BubbleCause::kWaiting, 1, 4, 12},
                                             {0, BubbleCause::kWaiting, 1, 15, 20},
                                             {1, BubbleCause::kWarmUp, -1, 0, 3},
                                             {1, BubbleCause::kDrain, -1, 19, 23}});
  REQUIRE(timeline.idle(0) == 13.0);
  REQUIRE(timeline.idle(1) == 7.0);
  REQUIRE(timeline.bubble_fraction() == Approx(20.0 / 46.0));
  REQUIRE(timeline.tasks[1].task == table.tasks[1]);
  REQUIRE(timeline.tasks[1].start == 2.0);
  REQUIRE(timeline.tasks[1].end == 4.0);
  REQUIRE(bubble_text(timeline) ==
          "stage      busy      idle   warm-up     drain   waiting for\n"
          "    0        10        13         0         0   stage 1: 13\n"
          "    1        16         7         3         4\n");
}

// f, i, w are times of a whole stage; those of its chunks are 1/R of them.
struct StageCost {
  double f, i, w;
  PipelineCosts costs(int64_t chunks) const {
    const double part = 1.0 / static_cast<double>(chunks);
    return {.pieces = {{f * part, i * part, w * part}}};
  }
  double work(int64_t microbatches) const {
    return static_cast<double>(microbatches) * (f + i + w);
  }
};

void require_idle(const PipelineTable& table, const StageCost& cost, double idle) {
  const PipelineTimeline timeline = pipeline_timeline(table, cost.costs(table.chunks));
  INFO(table.name << " S=" << table.stages << " M=" << table.microbatches << " R=" << table.chunks);
  REQUIRE(timeline.finish == Approx(cost.work(table.microbatches) + idle));
  for (int64_t stage = 0; stage < table.stages; ++stage)
    REQUIRE(timeline.idle(stage) == Approx(idle).margin(1e-9));
}

TEST_CASE("each stage is idle for the time that the papers give") {
  for (const StageCost cost : {StageCost{1, 1, 1}, StageCost{2, 3, 1.5}, StageCost{1, 0.5, 0.25}})
    for (int64_t s = 1; s <= 8; ++s)
      for (int64_t m = 1; m <= 16; ++m) {
        const double fill = static_cast<double>(s - 1);
        const double pass = cost.f + cost.i + cost.w;
        require_idle(gpipe_table(s, m), cost, fill * pass);
        require_idle(one_forward_one_backward_table(s, m), cost, fill * pass);
        for (int64_t r = 2; r <= 4 && m >= s; ++r) {
          require_idle(circular_table(s, m, r), cost, fill * pass / static_cast<double>(r));
          if (m % s == 0)
            require_idle(interleaved_table(s, m, r), cost, fill * pass / static_cast<double>(r));
        }
      }
}

TEST_CASE("ZB-H1 with equal times is idle for (S-1)(F+I-W), a third of 1F1B") {
  for (int64_t s = 1; s <= 8; ++s)
    for (int64_t m = s; m <= 16; ++m) {
      require_idle(zero_bubble_h1_table(s, m), {1, 1, 1}, static_cast<double>(s - 1));
      require_idle(zero_bubble_h1_table(s, m), {2, 2, 2}, static_cast<double>(2 * (s - 1)));
    }
}

TEST_CASE("one slow stage determines the time of a pipeline, and the others wait for it") {
  const PipelineTable table = one_forward_one_backward_table(3, 16);
  const PipelineTimeline timeline =
      pipeline_timeline(table, {.pieces = {{1, 1, 1}, {1, 1, 1}, {2, 2, 2}}});
  // The last stage starts after two forwards, works without a pause, and two backwards follow.
  REQUIRE(timeline.finish == 2.0 + 16 * 6 + 2 * 2);
  REQUIRE(timeline.idle(2) == 2.0 + 2 * 2);
  for (const Bubble& bubble : timeline.bubbles)
    if (bubble.cause == BubbleCause::kWaiting) REQUIRE(bubble.waits_for == bubble.stage + 1);
}

TEST_CASE("a send delays the next stage, but not a chunk of the same one") {
  const PipelineTimeline two = pipeline_timeline(gpipe_table(2, 1), {.send = 0.5});
  REQUIRE(two.finish == 3.0 + 3.0 + 2 * 0.5);
  const PipelineTimeline one = pipeline_timeline(circular_table(1, 2, 2), {.send = 0.5});
  REQUIRE(one.finish == 12.0);
  REQUIRE(one.bubbles.empty());
}

TEST_CASE("earliest ticks remove idle ticks that no task needs, and keep the order") {
  const PipelineTable lazy = parse_pipeline("mine", ". F0 . F1 . . . . B0 B1\n. . F0 . F1 B0 . B1");
  REQUIRE(pipeline_text(at_earliest_ticks(lazy)) ==
          "# mine: 2 stages, 2 microbatches\n"
          "# tick    0  1  2  3  4  5\n"
          "stage 0: F0 F1  .  . B0 B1\n"
          "stage 1:  . F0 F1 B0 B1  .\n");
  const PipelineTable orders = parse_pipeline("mine", "F0 F1 B0 B1\nF0 F1 B0 B1");
  REQUIRE(at_earliest_ticks(orders).tasks == at_earliest_ticks(lazy).tasks);
}

TEST_CASE("costs that do not fit the pipeline are an error") {
  const PipelineTable table = circular_table(2, 4, 3);
  REQUIRE(error_of([&] {
            pipeline_timeline(table, {.pieces = {{}, {}}});
          }) ==
          "circular: got the costs of 2 pieces, expected 6 (stages=2 × chunks=3), in the order of "
          "the model, or one for all");
  REQUIRE(error_of([&] {
            pipeline_timeline(table, {.pieces = {{1, -1, 1}}});
          }) == "circular: piece 0: backward_input is -1, expected 0 or more");
  REQUIRE(error_of([&] { pipeline_timeline(table, {.send = -2}); }) ==
          "circular: send is -2, expected 0 or more");
}

TEST_CASE("the time of a table that is not complete is an error") {
  REQUIRE_THAT(error_of([] { pipeline_timeline(parse_pipeline("mine", "F0"), {}); }),
               Catch::Contains("mine: stage 0 runs F0 for microbatch 0"));
  REQUIRE_THAT(error_of([] { at_earliest_ticks(parse_pipeline("mine", "F0 F0 B0")); }),
               Catch::Contains("mine: stage 0 runs twice F0, B0"));
}

}  // namespace
}  // namespace tessera
