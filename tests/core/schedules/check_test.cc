// SPDX-License-Identifier: Apache-2.0
// The checker of pipeline schedules: hand-written tables with one fault each, and faults put into
// correct tables, which it must find unless an independent definition says that they do no harm.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "core/schedules/timeline.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string fault_of(const PipelineTable& table) {
  return error_of([&] { check_pipeline(table); });
}
std::string fault_of(std::string_view text) { return fault_of(parse_pipeline("mine", text)); }

TEST_CASE("a hand-written schedule that is correct passes") {
  REQUIRE(fault_of("F0 . B0") == "no error");
  REQUIRE(fault_of("F0 F1 . B0 . B1 \n . F0 B0 F1 B1") == "no error");
  REQUIRE(fault_of("F0 . . I0 W0\n . F0 B0") == "no error");  // Split in one stage only.
  REQUIRE(fault_of("F0 . F0.1 . . B0.1 . B0\n . F0 . F0.1 B0.1 . B0") == "no error");
}

TEST_CASE("a missing, repeated or unfinished task is an error that names it") {
  REQUIRE(fault_of("F0 F1 B0") ==
          "mine: stage 0 runs F1 for microbatch 1 of chunk 0, expected F1 once, and either B1 once "
          "or I1 and W1 once each");
  REQUIRE(fault_of("F0 B0 F0") ==
          "mine: stage 0 runs twice F0, B0 for microbatch 0 of chunk 0, expected F0 once, and "
          "either B0 once or I0 and W0 once each");
  REQUIRE(fault_of("F0 I0") ==
          "mine: stage 0 runs F0, I0 for microbatch 0 of chunk 0, expected F0 once, and either B0 "
          "once or I0 and W0 once each");
  REQUIRE(fault_of("F0 B0 W0") ==
          "mine: stage 0 runs F0, B0, W0 for microbatch 0 of chunk 0, expected F0 once, and either "
          "B0 once or I0 and W0 once each");
  REQUIRE(fault_of("F0 B0 B0 B0") ==
          "mine: stage 0 runs F0, 3 times B0 for microbatch 0 of chunk 0, expected F0 once, and "
          "either B0 once or I0 and W0 once each");
  REQUIRE(fault_of("F0 F0.1 . . . . B0.1 B0\n . F0 . . B0") ==
          "mine: stage 1 runs nothing for microbatch 0 of chunk 1, expected F0.1 once, and either "
          "B0.1 once or I0.1 and W0.1 once each");
}

TEST_CASE("a task outside the sizes of its table is an error that names it") {
  PipelineTable table = gpipe_table(2, 2);
  table.tasks[0].stage = 2;
  REQUIRE(fault_of(table) == "GPipe: F0 of stage 2 at tick 0 has stage 2, expected 0 to 1");
  table = gpipe_table(2, 2);
  table.tasks[1].microbatch = -1;
  REQUIRE(fault_of(table) == "GPipe: F-1 of stage 0 at tick 1 has microbatch -1, expected 0 to 1");
  table = gpipe_table(2, 2);
  table.tasks[0].chunk = 1;
  REQUIRE(fault_of(table) == "GPipe: F0.1 of stage 0 at tick 0 has chunk 1, expected 0 to 0");
  table = gpipe_table(2, 2);
  table.tasks[0].tick = -1;
  REQUIRE(fault_of(table) == "GPipe: F0 of stage 0 has tick -1, expected 0 or more");
  table = gpipe_table(2, 2);
  table.microbatches = 0;
  REQUIRE(fault_of(table) == "GPipe: microbatches is 0, expected at least 1");
}

TEST_CASE("two tasks of a stage at one tick are an error") {
  PipelineTable table = gpipe_table(2, 2);
  table.tasks[1].tick = 0;
  REQUIRE(fault_of(table) ==
          "GPipe: stage 0 has F0 and F1 at tick 0, expected one task; move one to another tick");
}

TEST_CASE("a task before what it needs is an error that names both") {
  REQUIRE(fault_of("F0 . . B0\nF0 B0") ==
          "mine: F0 of stage 1 is at tick 0, but needs F0 of stage 0, which is at tick 0; move it "
          "to tick 1 or later");
  REQUIRE(fault_of("F0 . B0\n . F0 B0") ==
          "mine: B0 of stage 0 is at tick 2, but needs B0 of stage 1, which is at tick 2; move it "
          "to tick 3 or later");
  REQUIRE(
      fault_of("F0 F0.1 . . . B0.1 . B0\n . F0 F0.1 . B0.1 . B0") ==
      "mine: F0.1 of stage 0 is at tick 1, but needs F0 of stage 1, which is at tick 1; move it "
      "to tick 2 or later");
}

TEST_CASE("of several tasks that are too early, the first one is reported") {
  REQUIRE(
      fault_of("F0 F1 . B0 . B1\n. F1 B1 F0 B0") ==
      "mine: F1 of stage 1 is at tick 1, but needs F1 of stage 0, which is at tick 1; move it to "
      "tick 2 or later");
}

TEST_CASE("stages that wait for each other are an error that follows the cycle") {
  REQUIRE(fault_of("B0 F0") ==
          "mine: the schedule never ends: stage 0 stops at B0 (tick 0) until stage 0 has run F0 "
          "(tick 1); run one of the awaited tasks earlier in its stage");
  REQUIRE(fault_of("F0 W0 I0") ==
          "mine: the schedule never ends: stage 0 stops at W0 (tick 1) until stage 0 has run I0 "
          "(tick 2); run one of the awaited tasks earlier in its stage");
  REQUIRE(
      fault_of("F0 . . B0 F1 B1\n . F0 F1 B0 . B1") ==
      "mine: the schedule never ends: stage 0 stops at B0 (tick 3) until stage 1 has run B0 "
      "(tick 3), and stage 1 stops at F1 (tick 2) until stage 0 has run F1 (tick 4); run one of "
      "the awaited tasks earlier in its stage");
}

TEST_CASE("a cycle through some stages is followed from a stage that waits for it") {
  // Stages 1 and 2 wait for each other; stage 0 waits for stage 1.
  REQUIRE(
      fault_of("F0 F1 . . . . B0 B1\n . F0 . B0 F1 B1\n . . F0 F1 B0 B1") ==
      "mine: the schedule never ends: stage 1 stops at B0 (tick 3) until stage 2 has run B0 "
      "(tick 4), and stage 2 stops at F1 (tick 3) until stage 1 has run F1 (tick 4); run one of "
      "the awaited tasks earlier in its stage");
}

TEST_CASE("more live activations than declared are an error that names stage and tick") {
  PipelineTable table = gpipe_table(2, 4);
  table.live_bound = one_forward_one_backward_table(2, 4).live_bound;
  REQUIRE(fault_of(table) ==
          "GPipe: stage 0 holds 3 activations at tick 2, expected at most live_bound=2; run a "
          "backward of this stage before its next forward, or raise the bound");
  table.live_bound = {4};
  REQUIRE(fault_of(table) ==
          "GPipe: live_bound has 1 numbers, expected one for each of the 2 stages");
  table.live_bound = {};
  REQUIRE(fault_of(table) == "no error");
}

TEST_CASE("an activation is live from its forward to the last task that reads it") {
  const PipelineTable table = parse_pipeline("mine", "F0 F1 . . I0 B1 . W0 .\n . F0 F1 B0 B1");
  REQUIRE(live_activations(table) ==
          std::vector<std::vector<int64_t>>{{1, 2, 2, 2, 2, 2, 1, 1}, {0, 1, 2, 2, 1, 0, 0, 0}});
}

// The definition of a correct table, written as quantifiers over tasks and without the code under
// test: every task once, every need at an earlier tick, no two tasks of a stage at one tick.
bool is_correct(const PipelineTable& table) {
  std::map<std::tuple<char, int64_t, int64_t>, int64_t> tick_of;  // By letter, piece, microbatch.
  std::map<std::tuple<int64_t, int64_t>, int> at;
  for (const PipelineTask& task : table.tasks) {
    const int64_t piece = task.chunk * table.stages + task.stage;
    if (!tick_of.emplace(std::tuple(work_letter(task.work), piece, task.microbatch), task.tick)
             .second)
      return false;
    if (++at[{task.stage, task.tick}] > 1) return false;
  }
  for (int64_t piece = 0; piece < table.stages * table.chunks; ++piece)
    for (int64_t m = 0; m < table.microbatches; ++m) {
      const auto has = [&](char letter) { return tick_of.contains({letter, piece, m}); };
      if (!has('F') || has('B') == has('I') || has('I') != has('W')) return false;
    }
  const auto gradient_tick = [&](int64_t piece, int64_t m) {
    const auto whole = tick_of.find({'B', piece, m});
    return whole != tick_of.end() ? whole->second : tick_of.at({'I', piece, m});
  };
  for (const auto& [what, tick] : tick_of) {
    const auto [letter, piece, m] = what;
    if (letter == 'F' && piece > 0 && tick_of.at({'F', piece - 1, m}) >= tick) return false;
    if (letter == 'W' && tick_of.at({'I', piece, m}) >= tick) return false;
    if (letter != 'B' && letter != 'I') continue;
    if (tick_of.at({'F', piece, m}) >= tick) return false;
    if (piece + 1 < table.stages * table.chunks && gradient_tick(piece + 1, m) >= tick)
      return false;
  }
  return true;
}

std::vector<PipelineTable> correct_tables() {
  std::vector<PipelineTable> tables;
  for (int64_t stages = 1; stages <= 3; ++stages)
    for (const int64_t microbatches : {stages, 2 * stages, 2 * stages + 1}) {
      tables.push_back(gpipe_table(stages, microbatches));
      tables.push_back(one_forward_one_backward_table(stages, microbatches));
      tables.push_back(circular_table(stages, microbatches, 2));
      tables.push_back(zero_bubble_h1_table(stages, microbatches));
      if (microbatches % stages == 0) tables.push_back(interleaved_table(stages, microbatches, 2));
    }
  for (PipelineTable& table : tables) table.live_bound.clear();
  return tables;
}

// Requires that the checker and the definition agree about the table.
void require_same_verdict(const PipelineTable& table, int& faults) {
  const std::string fault = fault_of(table);
  INFO(fault << "\n" << table.name << " S=" << table.stages << " M=" << table.microbatches);
  REQUIRE((fault == "no error") == is_correct(table));
  faults += fault != "no error";
}

TEST_CASE("every dropped or repeated task of a correct schedule is found") {
  for (const PipelineTable& table : correct_tables()) {
    REQUIRE(is_correct(table));
    for (size_t i = 0; i < table.tasks.size(); ++i) {
      PipelineTable dropped = table;
      dropped.tasks.erase(dropped.tasks.begin() + static_cast<int64_t>(i));
      REQUIRE_FALSE(is_correct(dropped));
      REQUIRE(fault_of(dropped) != "no error");
      PipelineTable repeated = table;
      repeated.tasks.push_back(table.tasks[i]);
      repeated.tasks.back().tick = table.ticks();
      REQUIRE(fault_of(repeated) != "no error");
    }
  }
}

TEST_CASE("the checker and the definition agree about every swap of two tasks of a stage") {
  int faults = 0;
  int swaps = 0;
  for (const PipelineTable& table : correct_tables())
    for (size_t i = 0; i < table.tasks.size(); ++i)
      for (size_t j = i + 1; j < table.tasks.size(); ++j) {
        if (table.tasks[i].stage != table.tasks[j].stage) continue;
        PipelineTable swapped = table;
        std::swap(swapped.tasks[i].tick, swapped.tasks[j].tick);
        require_same_verdict(swapped, faults);
        ++swaps;
      }
  REQUIRE(faults > swaps / 2);
  REQUIRE(faults < swaps);  // Some do no harm: two forwards with idle ticks around, say.
}

TEST_CASE("the checker and the definition agree about a task at any other tick, stage or work") {
  int faults = 0;
  int changes = 0;
  for (const PipelineTable& table : correct_tables())
    for (size_t i = 0; i < table.tasks.size(); ++i) {
      const auto with = [&](auto change) {
        PipelineTable changed = table;
        change(changed.tasks[i]);
        require_same_verdict(changed, faults);
        ++changes;
      };
      for (int64_t tick = 0; tick <= table.ticks(); ++tick)
        with([&](PipelineTask& task) { task.tick = tick; });
      for (int64_t stage = 0; stage < table.stages; ++stage)
        with([&](PipelineTask& task) { task.stage = stage; });
      for (int64_t microbatch = 0; microbatch < table.microbatches; ++microbatch)
        with([&](PipelineTask& task) { task.microbatch = microbatch; });
      for (int work = 0; work < 4; ++work)
        with([&](PipelineTask& task) { task.work = static_cast<PipelineWork>(work); });
    }
  REQUIRE(faults > changes / 2);
}

TEST_CASE("an order of the stages has no deadlock exactly if some ticks for it are correct") {
  // Swapped tasks at their earliest ticks: the error of a cycle is the only one possible.
  int cycles = 0;
  int orders = 0;
  for (const PipelineTable& table : correct_tables())
    for (size_t i = 0; i + 1 < table.tasks.size(); ++i)
      for (size_t j = i + 1; j < std::min(i + 9, table.tasks.size()); ++j) {
        if (table.tasks[i].stage != table.tasks[j].stage) continue;
        PipelineTable swapped = table;
        std::swap(swapped.tasks[i].tick, swapped.tasks[j].tick);
        const std::string fault = error_of([&] { swapped = at_earliest_ticks(swapped); });
        ++orders;
        if (fault == "no error") {
          REQUIRE(is_correct(swapped));
          REQUIRE(fault_of(swapped) == "no error");
        } else {
          REQUIRE_THAT(fault, Catch::Contains("the schedule never ends: stage "));
          REQUIRE_FALSE(is_correct(swapped));
          ++cycles;
        }
      }
  REQUIRE(cycles > 0);
  REQUIRE(cycles < orders);
}

}  // namespace
}  // namespace tessera
