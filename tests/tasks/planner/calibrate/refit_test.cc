// SPDX-License-Identifier: Apache-2.0
// The launches of a trace, matched to a program, and a hardware file fitted to them: planted
// figures are found again, also among outliers.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/compile/spmd/lower.h"
#include "core/io/json.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/planner/calibrate/fit.h"
#include "tasks/planner/calibrate/run_trace.h"
#include "tasks/planner/prices/roofline.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

// Products, elementwise work and gathers, each of several sizes.
StepProgram mixed_program(const Mesh& mesh) {
  std::vector<std::string> types;
  for (const int64_t size : {256, 1024, 4096})
    types.insert(types.end(), {fmt::format("bf16[\"row={0} inner={0}\"]", size),
                               fmt::format("bf16[\"inner={0} column={0}\"]", size),
                               fmt::format("f32[\"x={0} y={0}\"]", size),
                               fmt::format("bf16[\"v/data={0} w={0}\"]", size)});
  Trial trial(mesh, types);
  for (size_t i = 0; i < types.size(); i += 4) {
    const auto& in = trial.inputs();
    output(fmt::format("a{}", i), einsum(in[i], in[i + 1], over("inner")));
    output(fmt::format("b{}", i), exp(in[i + 2]));
    output(fmt::format("c{}", i), reshard(in[i + 3], "v w"));
  }
  return plan_memory(lower(trial.graph(), mesh), KernelFacts{});
}

// Returns the time of a launch: the roofline's time.
double seconds_on(const Hardware& hardware, const Launch& launch, const Mesh& mesh) {
  return launch_cost(*launch.graph, launch.graph->node(launch.node), mesh, hardware).seconds;
}

TraceSlice slice(const std::string& type, const std::string& line, double seconds) {
  return {.line = line, .launch = type, .end_ns = std::llround(seconds * 1e9), .is_launch = true};
}

// The steps of a run on this hardware, `noise` a factor for each step.
std::vector<TracedStep> steps_on(const Hardware& hardware, const StepProgram& plan,
                                 const Mesh& mesh, const std::vector<double>& noise) {
  std::vector<TracedStep> steps;
  for (const double factor : noise) {
    TracedStep step{.step = std::ssize(steps)};
    for (const Launch& launch : plan.launches) {
      const Node& node = launch.graph->node(launch.node);
      step.launches.push_back(slice(launch_type(*launch.graph, node), node.site.text(),
                                    factor * seconds_on(hardware, launch, mesh)));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST_CASE("a fit finds the figures of the hardware that a run was on") {
  const Mesh mesh({{"data", 4}});
  const StepProgram plan = mixed_program(mesh);
  const Hardware start = hardware_named("h200");
  Hardware truth = start;
  truth.efficiency = {.products = 0.5, .copies = 0.3, .links = 0.4};
  truth.launch_overhead = 7e-6;
  truth.link.latency = 40e-6;
  // One step of five is much slower: medians and least absolute deviations do not notice.
  const auto steps = steps_on(truth, plan, mesh, {1.0, 0.98, 9.0, 1.02, 1.0});
  const auto launches = measured_launches(steps, {{.stage = 0, .plan = &plan}}, mesh, "trace");
  Hardware fitted = start;
  const auto fields = fit_hardware(fitted, launches, mesh);
  for (const Launch& launch : plan.launches)
    REQUIRE(seconds_on(fitted, launch, mesh) ==
            Approx(seconds_on(truth, launch, mesh)).epsilon(0.06));
  REQUIRE(fitted.efficiency.products == Approx(0.5).epsilon(0.05));
  REQUIRE(fitted.efficiency.copies == Approx(0.3).epsilon(0.05));
  REQUIRE(fitted.efficiency.links == Approx(0.4).epsilon(0.1));
  REQUIRE(fitted.peak_flops.bf16 == start.peak_flops.bf16);
  // No launch crosses slices.
  REQUIRE(std::ranges::none_of(
      fields, [](const FittedField& field) { return field.name == "network.latency"; }));
}

TEST_CASE("a fit to a run as predicted changes nothing") {
  const Mesh mesh({{"data", 4}});
  const StepProgram plan = mixed_program(mesh);
  Hardware start = hardware_named("h200");
  const auto launches = measured_launches(steps_on(start, plan, mesh, {1.0}),
                                          {{.stage = 0, .plan = &plan}}, mesh, "trace");
  for (const FittedField& field : fit_hardware(start, launches, mesh))
    REQUIRE(field.after == Approx(field.before).epsilon(0.01));
}

TEST_CASE("a collective takes what it takes on the device that comes last") {
  const Mesh mesh({{"data", 2}});
  const StepProgram plan = mixed_program(mesh);
  std::vector<TracedStep> steps;
  for (const int64_t device : {0, 1}) {
    TracedStep step = steps_on(hardware_named("h200"), plan, mesh, {1.0})[0];
    step.device = device;
    for (TraceSlice& launch : step.launches) launch.end_ns = device == 0 ? 500 : 250;
    steps.push_back(std::move(step));
  }
  for (const MeasuredLaunch& each :
       measured_launches(steps, {{.stage = 0, .plan = &plan}}, mesh, "trace")) {
    // The median of two is the larger one.
    REQUIRE(each.seconds == Approx(is_collective(*each.node) ? 250e-9 : 500e-9));
    REQUIRE(each.weight == Approx(is_collective(*each.node) ? 250e-9 : 1000e-9));
  }
}

TEST_CASE("a launch that the program lacks, and one that is missing, are named") {
  const Mesh mesh({{"data", 4}});
  const StepProgram plan = mixed_program(mesh);
  const std::vector<TracedStep> good = steps_on(hardware_named("h200"), plan, mesh, {1.0});
  const auto problem = [&](std::vector<TracedStep> steps) {
    return error_of([&] {
      measured_launches(steps, {{.stage = 0, .plan = &plan}}, mesh, "run/trace.json.gz");
    });
  };
  std::vector<TracedStep> other = good;
  other[0].launches[1].launch = "exp (f32[\"x=3\"]) -> (f32[\"x=3\"])";
  REQUIRE_THAT(problem(other),
               Contains("run/trace.json.gz is the trace of another program: in step 1 of device 0, "
                        "launch 2 of 9 is 'exp (f32[\"x=3\"]) -> (f32[\"x=3\"])'") &&
                   Contains("not in the program of 9 launches, which has 'exp (f32[\"x=256 ") &&
                   Contains("--config=RUN"));
  other = good;
  other[0].launches.push_back(good[0].launches[0]);
  REQUIRE_THAT(problem(other), Contains("launch 10 of 10 is 'einsum") &&
                                   Contains("more often than in the program of 9 launches"));
  other = good;
  other[0].launches.pop_back();
  REQUIRE_THAT(problem(other), Contains("launch 9 of 9 of the program is missing: 'all_gather"));
  other = good;
  other[0].device = 4;
  REQUIRE_THAT(problem(other), Contains("the device is not in the mesh data=4, which has 4"));
  // The order is of no importance.
  other = good;
  std::ranges::reverse(other[0].launches);
  REQUIRE(measured_launches(other, {{.stage = 0, .plan = &plan}}, mesh, "trace").size() == 9);
}

TEST_CASE("steps of a trace have their launches of both tracks, without waits") {
  const auto slice = [](const char* name, int64_t track, double begin, double end,
                        const char* launch = nullptr) {
    JsonLine json;
    json.add("name", std::string_view(name)).add("ph", std::string_view("X"));
    json.add("ts", begin).add("dur", end - begin).add("pid", int64_t{3}).add("tid", track);
    JsonLine arguments;
    arguments.add("line", std::string_view("a.cc:1"));
    if (launch != nullptr && *launch != '\0') arguments.add("launch", std::string_view(launch));
    if (launch != nullptr) json.add_raw("args", arguments.text());
    return json.text();
  };
  const auto steps = [&](const std::vector<std::string>& events) {
    std::string list;
    for (const std::string& event : events) list += (list.empty() ? "" : ",") + event;
    return traced_steps(trace_slices("{\"traceEvents\": [" + list + "]}", "t"), "t");
  };
  const auto both = steps({slice("exp", 1, 0, 10, "exp 1"), slice("add", 1, 12, 20, "add 1"),
                           slice("wait for all_gather", 1, 20, 25, ""), slice("layer", 1, 0, 25),
                           slice("step 7", 1, 0, 25), slice("exp", 1, 30, 40, "exp 1"),
                           slice("step 8", 1, 30, 40), slice("all_gather", 2, 5, 25, "gather 1"),
                           slice("step 7", 2, 5, 25)});
  REQUIRE(both.size() == 2);
  REQUIRE(both[0].step == 7);
  REQUIRE(both[0].device == 2);
  REQUIRE(both[0].seconds == Approx(25e-6));
  REQUIRE(both[0].launches.size() == 3);
  REQUIRE(both[0].launches[1].launch == "gather 1");
  REQUIRE(both[0].launches[1].seconds() == Approx(20e-6));
  REQUIRE(both[0].gaps.size() == 2);
  REQUIRE(both[0].gaps[0] == Approx(2e-6));
  REQUIRE(both[1].launches.size() == 1);
  REQUIRE_THAT(error_of([&] { steps({slice("exp", 1, 0, 1, "exp 1")}); }),
               Contains("t has no steps"));
  REQUIRE_THAT(error_of([&] {
                 steps({slice("exp", 1, 0, 1, ""), slice("step 1", 1, 0, 1)});
               }),
               Contains("t was written by an older build: its launches have no types"));
}

}  // namespace
}  // namespace tessera
