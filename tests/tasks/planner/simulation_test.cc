// SPDX-License-Identifier: Apache-2.0
// Tests when launches run on the streams of one device and of the stages of a pipeline: small
// programs with times computed by hand.
#include "tasks/planner/simulation.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

SimulatedLaunch kernel(double seconds) { return {.seconds = seconds}; }
SimulatedLaunch start(double seconds, int64_t rendezvous = -1) {
  return {.kind = LaunchKind::kStart,
          .is_collective = true,
          .seconds = seconds,
          .rendezvous = rendezvous};
}
SimulatedLaunch wait_for(int64_t position) {
  return {.kind = LaunchKind::kWait, .is_collective = true, .waits_for = position};
}

double end_of(const std::vector<SimulatedTimes>& times) {
  return std::ranges::max(times, {}, &SimulatedTimes::end).end;
}
SimulatedTimes simulated(const SimulatedProgram& program) { return simulate({program}).front(); }

TEST_CASE("kernels of one stream end exactly at their sum") {
  SimulatedProgram program;
  double sum = 0.0;
  for (int i = 1; i <= 1000; ++i) {
    const double seconds = 1e-6 / static_cast<double>(i);
    program.launches.push_back(kernel(seconds));
    sum += seconds;
  }
  const SimulatedTimes times = simulated(program);
  REQUIRE(times.end == sum);
  REQUIRE(times.kernels_end == sum);
  REQUIRE(stalls_of(program, times).empty());
  program.begin = 2.0;
  REQUIRE(simulated(program).launches[0].begin == 2.0);
}

TEST_CASE("two collectives on the links of a device take turns") {
  const SimulatedProgram program{
      .launches = {start(5), start(3), kernel(1), wait_for(0), kernel(2), wait_for(1), kernel(1)}};
  const SimulatedTimes times = simulated(program);
  REQUIRE(times.launches[0].end == 5.0);
  REQUIRE(times.launches[1].begin == 5.0);
  REQUIRE(times.launches[1].end == 8.0);
  REQUIRE(times.launches[3].seconds() == 4.0);  // From 1 to 5.
  REQUIRE(times.launches[5].seconds() == 1.0);  // From 7 to 8.
  REQUIRE(times.end == 9.0);
  const std::vector<Stall> stalls = stalls_of(program, times);
  REQUIRE(stalls.size() == 2);
  REQUIRE(stalls[0].launch == 0);
  REQUIRE(stalls[0].exposed == 4.0);
  REQUIRE(stalls[1].launch == 1);
  REQUIRE(stalls[1].exposed == 1.0);
  REQUIRE(stalls[1].idle == 0.0);
}

TEST_CASE("a gather that is prefetched is hidden, a late one is exposed") {
  const SimulatedProgram early{.launches = {start(3), kernel(4), wait_for(0), kernel(1)}};
  REQUIRE(simulated(early).end == 5.0);
  REQUIRE(stalls_of(early, simulated(early)).empty());
  const SimulatedProgram late{.launches = {kernel(4), start(3), wait_for(1), kernel(1)}};
  REQUIRE(simulated(late).end == 8.0);
  REQUIRE(stalls_of(late, simulated(late)).front().exposed == 3.0);
}

TEST_CASE("a collective without a wait stops kernels until it is done") {
  const SimulatedProgram program{
      .launches = {start(2), kernel(1), {.is_collective = true, .seconds = 3.0}, kernel(1)}};
  const SimulatedTimes times = simulated(program);
  REQUIRE(times.launches[2].begin == 2.0);
  REQUIRE(times.end == 6.0);
  REQUIRE(stalls_of(program, times).front().exposed == 4.0);  // Also the one before it.
}

TEST_CASE("a receive begins with its send, and what comes before that is idle time") {
  const std::vector<SimulatedProgram> programs = {
      {.launches = {kernel(2), start(1, 7), kernel(3), wait_for(1)}},
      {.launches = {start(1, 7), wait_for(0), kernel(4)}}};
  const std::vector<SimulatedTimes> times = simulate(programs);
  REQUIRE(times[1].launches[0].begin == 2.0);
  REQUIRE(times[1].launches[0].end == 3.0);
  REQUIRE(times[0].end == 5.0);
  REQUIRE(times[1].end == 7.0);
  const std::vector<Stall> stalls = stalls_of(programs[1], times[1]);
  REQUIRE(stalls.size() == 1);
  REQUIRE(stalls[0].idle == 2.0);
  REQUIRE(stalls[0].exposed == 1.0);
  REQUIRE(stalls_of(programs[0], times[0]).empty());
}

TEST_CASE("a collective over stages begins when the last of them has reached it") {
  const std::vector<SimulatedProgram> programs = {
      {.launches = {kernel(1), start(2, 0), wait_for(1)}},
      {.launches = {kernel(6), start(2, 0), wait_for(1)}},
      {.launches = {kernel(3), start(2, 0), wait_for(1)}}};
  for (const SimulatedTimes& times : simulate(programs)) {
    REQUIRE(times.launches[1].begin == 6.0);
    REQUIRE(times.end == 8.0);
  }
}

// The program of each stage as the pass that divides a graph orders it (stage_node.h): after the
// tasks of a tick, what its tasks send. A forward takes 1, a backward twice that.
std::vector<SimulatedProgram> programs_of(const PipelineTable& table, double send = 0.0) {
  std::vector<SimulatedProgram> programs(static_cast<size_t>(table.stages));
  std::map<std::pair<int64_t, int64_t>, int64_t> received;  // By stage and maker: its start.
  const ValueMakers makers(table);
  std::vector<std::vector<int64_t>> by_tick(static_cast<size_t>(table.ticks()));
  for (size_t i = 0; i < table.tasks.size(); ++i)
    by_tick[static_cast<size_t>(table.tasks[i].tick)].push_back(static_cast<int64_t>(i));
  const auto program_of = [&](int64_t stage) -> std::vector<SimulatedLaunch>& {
    return programs[static_cast<size_t>(stage)].launches;
  };
  std::vector<std::vector<int64_t>> readers(table.tasks.size());  // Stages.
  for (const PipelineTask& task : table.tasks)
    for (const PipelineValue& value : needed_values(table, task)) {
      const int64_t maker = makers.maker(value);
      std::vector<int64_t>& stages = readers[static_cast<size_t>(maker)];
      if (table.tasks[static_cast<size_t>(maker)].stage != task.stage &&
          std::ranges::find(stages, task.stage) == stages.end())
        stages.push_back(task.stage);
    }
  int64_t rendezvous = 0;
  for (std::vector<int64_t>& tasks : by_tick) {
    std::ranges::sort(tasks, {},
                      [&](int64_t i) { return table.tasks[static_cast<size_t>(i)].stage; });
    for (const int64_t i : tasks) {
      const PipelineTask& task = table.tasks[static_cast<size_t>(i)];
      for (const PipelineValue& value : needed_values(table, task)) {
        const auto found = received.find({task.stage, makers.maker(value)});
        if (found == received.end()) continue;
        program_of(task.stage).push_back(wait_for(found->second));
        received.erase(found);
      }
      program_of(task.stage).push_back(kernel(task.work == PipelineWork::kBackward ? 2.0 : 1.0));
    }
    for (const int64_t i : tasks)
      for (const int64_t reader : readers[static_cast<size_t>(i)]) {
        program_of(table.tasks[static_cast<size_t>(i)].stage).push_back(start(send, rendezvous));
        received[{reader, i}] = std::ssize(program_of(reader));
        program_of(reader).push_back(start(send, rendezvous++));
      }
  }
  return programs;
}

double bubble_share(const std::vector<SimulatedProgram>& programs) {
  const std::vector<SimulatedTimes> times = simulate(programs);
  const double end = end_of(times);
  double idle = 0.0;
  for (size_t i = 0; i < programs.size(); ++i) {
    for (const Stall& stall : stalls_of(programs[i], times[i])) idle += stall.idle;
    idle += end - times[i].kernels_end;
  }
  return idle / (end * static_cast<double>(programs.size()));
}

TEST_CASE("the bubbles of 1F1B with equal stages are (p-1)/(m+p-1) of the time") {
  for (const int64_t stages : {1, 2, 4, 8})
    for (const int64_t microbatches : {1, 3, 8, 24}) {
      CAPTURE(stages, microbatches);
      const auto p = static_cast<double>(stages), m = static_cast<double>(microbatches);
      const PipelineTable table = one_forward_one_backward_table(stages, microbatches);
      REQUIRE(bubble_share(programs_of(table)) == Approx((p - 1.0) / (m + p - 1.0)).margin(1e-12));
    }
}

TEST_CASE("ZB-H1 has shorter bubbles than 1F1B, which has those of GPipe") {
  for (const int64_t stages : {2, 4, 8}) {
    const int64_t microbatches = 3 * stages;
    const double zero = bubble_share(programs_of(zero_bubble_h1_table(stages, microbatches)));
    const double one =
        bubble_share(programs_of(one_forward_one_backward_table(stages, microbatches)));
    CAPTURE(stages, zero, one);
    REQUIRE(zero < 0.7 * one);
    REQUIRE(zero > 0.0);
    REQUIRE(bubble_share(programs_of(gpipe_table(stages, microbatches))) == Approx(one));
  }
}

TEST_CASE("sends that take time make a pipeline longer") {
  const PipelineTable table = one_forward_one_backward_table(4, 8);
  REQUIRE(end_of(simulate(programs_of(table, 0.25))) > end_of(simulate(programs_of(table))) + 1.0);
}

}  // namespace
}  // namespace tessera
