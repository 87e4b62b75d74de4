// SPDX-License-Identifier: Apache-2.0
// The text form of pipeline schedules.
#include <algorithm>
#include <string>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

void require_round_trip(const PipelineTable& table) {
  const std::string text = pipeline_text(table);
  PipelineTable read = parse_pipeline(table.name, text);
  REQUIRE(read.stages == table.stages);
  REQUIRE(read.microbatches == table.microbatches);
  REQUIRE(read.chunks == table.chunks);
  REQUIRE(pipeline_text(read) == text);
  std::sort(read.tasks.begin(), read.tasks.end());
  REQUIRE(read.tasks == table.tasks);
}

TEST_CASE("a schedule that is printed and read is the same") {
  for (int64_t stages = 1; stages <= 8; ++stages)
    for (int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
      INFO("stages " << stages << ", microbatches " << microbatches);
      require_round_trip(gpipe_table(stages, microbatches));
      require_round_trip(one_forward_one_backward_table(stages, microbatches));
      require_round_trip(zero_bubble_h1_table(stages, microbatches));
      if (microbatches < stages) continue;
      require_round_trip(circular_table(stages, microbatches, 3));
      if (microbatches % stages == 0)
        require_round_trip(interleaved_table(stages, microbatches, 3));
    }
}

TEST_CASE("the columns of a printed schedule are aligned") {
  REQUIRE(pipeline_text(interleaved_table(2, 2, 2)) ==
          "# interleaved 1F1B: 2 stages, 2 microbatches, 2 chunks per stage\n"
          "# tick      0    1    2    3    4    5    6    7    8    9\n"
          "stage 0:   F0   F1 F0.1 F1.1    . B0.1    . B1.1   B0   B1\n"
          "stage 1:    .   F0   F1 F0.1 B0.1 F1.1 B1.1   B0   B1    .\n");
}

TEST_CASE("comments, empty lines, labels and any spaces are read") {
  const PipelineTable plain = parse_pipeline("mine", "F0 . . B0\n. F0 B0");
  for (const char* text :
       {"stage 0: F0 . . B0\nstage 1: . F0 B0\n",
        "\n# mine\r\n\tF0  .  . B0 # first\r\n\n. F0\tB0 .", "F0 . . B0.0\n  stage 1:. F0.0 B0"}) {
    INFO(text);
    const PipelineTable read = parse_pipeline("mine", text);
    REQUIRE(read.tasks == plain.tasks);
    REQUIRE(read.stages == 2);
  }
  REQUIRE(plain.tasks.size() == 4);
  REQUIRE(plain.tasks[1] == PipelineTask{3, 0, 0, 0, PipelineWork::kBackward});
}

TEST_CASE("a stage without tasks is read, and the check reports it") {
  const PipelineTable table = parse_pipeline("mine", "F0 B0\n. .");
  REQUIRE(table.stages == 2);
  REQUIRE_THAT(error_of([&] { check_pipeline(table); }),
               Catch::Contains("stage 1 runs nothing for microbatch 0"));
}

TEST_CASE("a cell that is no task is an error with its line and column") {
  REQUIRE(
      error_of([] { parse_pipeline("mine", "# a schedule\nF0 . B0\n. F0 X0"); }) ==
      "mine: line 3, column 6 (stage 1, tick 2): got 'X0', expected F (forward), B (backward), "
      "I (backward of input) or W (backward of weight) with the number of a microbatch, such as "
      "F3, or F3.1 for chunk 1; or . for an idle tick");
  for (const char* cell : {"f0", "F", "F-1", "F+1", "F1.", "F.1", "F1.2.3", "F1.-2", "0", "..",
                           "F1000000", "F99999999999999999999", "F0,", "F0x", "-", "F0B0"}) {
    INFO(cell);
    REQUIRE_THAT(error_of([&] { parse_pipeline("mine", std::string("F0 ") + cell); }),
                 Catch::Contains("line 1, column 4 (stage 0, tick 1): got '" + std::string(cell)));
  }
}

TEST_CASE("a label out of order is an error with its line and column") {
  REQUIRE(
      error_of([] { parse_pipeline("mine", "F0 B0\n stage 2: F0 B0"); }) ==
      "mine: line 2, column 2: got 'stage 2:', expected 'stage 1:'; stages are in order from 0");
  REQUIRE_THAT(error_of([] { parse_pipeline("mine", "device 0: F0 B0"); }),
               Catch::Contains("line 1, column 1: got 'device 0:', expected 'stage 0:'"));
}

TEST_CASE("a text without a stage is an error") {
  for (const char* text : {"", "\n\n", "# nothing\n"})
    REQUIRE(error_of([&] { parse_pipeline("mine", text); }) ==
            "mine: the schedule is empty, expected a line for each stage, such as F0 F1 . B0 B1");
}

TEST_CASE("large numbers of a misprint cost no memory") {
  REQUIRE_THAT(error_of([] { check_pipeline(parse_pipeline("mine", "F0 B0 F999999.999999")); }),
               Catch::Contains("stage 0 runs nothing for microbatch 1 of chunk 0"));
}

}  // namespace
}  // namespace tessera
