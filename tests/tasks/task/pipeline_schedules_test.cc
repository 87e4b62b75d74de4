// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules by name, those of the library and one of a plugin.
#include "tasks/task/pipeline_schedules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "core/schedules/timeline.h"
#include "tests/support/catch.h"

namespace tessera {

// A schedule like one of a plugin: the order of each stage, at its earliest ticks. Every
// microbatch goes forwards and backwards before the next one starts; the last stage may be wrong.
class OneByOne final : public PipelineSchedule {
 public:
  struct HParams {
    using Instance = OneByOne;
    static constexpr std::string_view kName = "OneByOne";
    bool forget_last = false;
    FIELDS(forget_last)
  };
  explicit OneByOne(const HParams& p) : p_(p) {}

  PipelineTable table(int64_t stages, int64_t microbatches) const override {
    PipelineTable table = {.name = "one by one", .stages = stages, .microbatches = microbatches};
    for (int64_t stage = 0; stage < stages; ++stage)
      for (int64_t i = 0; i < microbatches; ++i) {
        table.tasks.push_back({2 * i, stage, 0, i, PipelineWork::kForward});
        table.tasks.push_back({2 * i + 1, stage, 0, i, PipelineWork::kBackward});
      }
    if (!p_.forget_last) return at_earliest_ticks(table);
    table.tasks.pop_back();
    return table;
  }

 private:
  HParams p_;
};
REGISTER_TEMPLATE(PipelineSchedule, OneByOne);

namespace {

Template<PipelineSchedule> named(const std::string& name) {
  Template<PipelineSchedule> schedule;
  from_tree(Tree::typed(name, {}), schedule);
  return schedule;
}

TEST_CASE("each schedule of the library is found by its name") {
  const auto text = [](const std::string& name) {
    return pipeline_text(checked_table(named(name), 4, 8));
  };
  REQUIRE(text("GPipe") == pipeline_text(gpipe_table(4, 8)));
  REQUIRE(text("OneForwardOneBackward") == pipeline_text(one_forward_one_backward_table(4, 8)));
  REQUIRE(text("InterleavedOneForwardOneBackward") == pipeline_text(interleaved_table(4, 8, 2)));
  REQUIRE(text("CircularPipeline") == pipeline_text(circular_table(4, 8, 1)));
  REQUIRE(text("ZeroBubbleH1") == pipeline_text(zero_bubble_h1_table(4, 8)));
  REQUIRE_THAT(error_of([] { named("ZeroBubbleH2"); }), Catch::Contains("ZeroBubbleH1"));
}

TEST_CASE("the chunks of a schedule are a field") {
  REQUIRE(checked_table(CircularPipeline::HParams{.chunks = 3}, 2, 4).ticks() == 2 * (4 * 3 + 1));
  REQUIRE(checked_table(InterleavedOneForwardOneBackward::HParams{.chunks = 4}, 2, 4).chunks == 4);
}

TEST_CASE("a configuration that is written and read holds the same schedule") {
  const Template<PipelineSchedule> written = WrittenPipeline::HParams{
      .stages = {"F0 F1 . B0 . B1", ". F0 B0 F1 B1"}, .live_bound = {2, 1}};
  Template<PipelineSchedule> read;
  from_tree(written.to_tree(), read);
  REQUIRE(read == written);
  const PipelineTable table = checked_table(read, 2, 2);
  REQUIRE(table.live_bound == std::vector<int64_t>{2, 1});
  REQUIRE(table.ticks() == 6);
}

TEST_CASE("a hand-written schedule is checked, with its bound, when it is used") {
  WrittenPipeline::HParams p{.stages = {"F0 F1 . B0 . B1", ". F0 B0 F1 B1"}, .live_bound = {1, 1}};
  const auto fault = [&](int64_t stages, int64_t microbatches) {
    return error_of([&] { checked_table(p, stages, microbatches); });
  };
  REQUIRE_THAT(fault(2, 2), Catch::Contains("WrittenPipeline: stage 0 holds 2 activations"));
  p.live_bound = {};
  REQUIRE(fault(2, 2) == "no error");
  REQUIRE(fault(4, 8) ==
          "WrittenPipeline: the schedule has 2 stages and 2 microbatches, expected 4 and 8; write "
          "it for these numbers, or change the mesh or num_microbatches");
  p.stages[1] = ". F0 B0 F1 b1";
  REQUIRE_THAT(fault(2, 2), Catch::Contains("WrittenPipeline: line 2, column 12 (stage 1, tick 4): "
                                            "got 'b1', expected F (forward)"));
  p.stages[1] = ". F1 B1 F0 B0";
  REQUIRE_THAT(fault(2, 2), Catch::Contains("WrittenPipeline: F1 of stage 1 is at tick 1, but "
                                            "needs F1 of stage 0, which is at tick 1"));
  p.stages[0] = "F0 B0 F1 B1";
  REQUIRE_THAT(fault(2, 2), Catch::Contains("the schedule never ends: stage 0 stops at B0 (tick 1) "
                                            "until stage 1 has run B0 (tick 4), and stage 1 stops "
                                            "at F1 (tick 1) until stage 0 has run F1 (tick 2)"));
}

TEST_CASE("a schedule of a plugin is found by its name, and its table is checked") {
  const PipelineTable table = checked_table(named("OneByOne"), 3, 2);
  REQUIRE(table.ticks() == 12);
  REQUIRE(peak_live_activations(table) == std::vector<int64_t>{1, 1, 1});
  REQUIRE_THAT(error_of([] { checked_table(OneByOne::HParams{.forget_last = true}, 3, 2); }),
               Catch::Contains("one by one: stage 2 runs F1 for microbatch 1"));
}

}  // namespace
}  // namespace tessera
