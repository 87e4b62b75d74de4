// SPDX-License-Identifier: Apache-2.0
// Measured launch costs: the file, what it says of launches, and what is not such a file.
#include "tasks/launch_costs/launch_costs.h"

#include <fmt/format.h>

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/passes/spmd/lower.h"
#include "core/runtime/executor/launch_type.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

// A product, exp of it, and exp of a larger array.
Graph three_launches() {
  Trial trial(Mesh(), {"f32[\"row=4 inner=8\"]", "f32[\"inner=8 column=2\"]", "f32[\"x=32\"]"});
  output("y", exp(einsum(trial.inputs()[0], trial.inputs()[1], over("inner"))));
  output("z", exp(trial.inputs()[2]));
  return lower(trial.graph(), Mesh());
}

MeasuredLaunch row(const std::string& type, LaunchWork work, double median, double bytes,
                   double flops = 0.0) {
  return {.type = type,
          .work = work,
          .count = 4,
          .median = median,
          .spread = median / 8,
          .flops = flops,
          .bytes = bytes};
}

const MeasuredRun kRun{.experiment = "quickstart.SourceLm",
                       .device = "cpu: 1 thread",
                       .mesh = "data=1",
                       .step_seconds = 0.5,
                       .gap = 1e-6};

TEST_CASE("a launch takes what its type took, another what its bytes take at that rate") {
  const Graph graph = three_launches();
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes()) nodes.push_back(&node);
  REQUIRE(nodes.size() == 3);
  REQUIRE(
      launch_type(graph, *nodes[0]) ==
      "einsum (f32[\"row=4 inner=8\"], f32[\"inner=8 column=2\"]) -> (f32[\"row=4 column=2\"])");
  const LaunchCosts costs(
      kRun, {row(launch_type(graph, *nodes[0]), LaunchWork::kProduct, 3e-4, 0.0, 128.0),
             row(launch_type(graph, *nodes[1]), LaunchWork::kKernel, 1e-4, 64.0)});
  REQUIRE(costs.find(graph, *nodes[0])->median == 3e-4);
  REQUIRE(costs.find(graph, *nodes[2]) == nullptr);
  REQUIRE(costs.seconds(graph, *nodes[0]) == Approx(3.01e-4));
  REQUIRE(costs.seconds(graph, *nodes[1]) == Approx(1.01e-4));
  // Four times the bytes of the measured one.
  REQUIRE(costs.seconds(graph, *nodes[2]) == Approx(4.01e-4));
}

TEST_CASE("costs without collectives do not schedule collectives") {
  REQUIRE_FALSE(schedule_seconds(std::nullopt));
  REQUIRE_FALSE(schedule_seconds(LaunchCosts(kRun, {row("a", LaunchWork::kKernel, 1e-4, 1.0)})));
  const std::optional<LaunchCosts> costs =
      LaunchCosts(kRun, {row("a", LaunchWork::kCollective, 1e-4, 1.0)});
  REQUIRE(schedule_seconds(costs));
}

TEST_CASE("a file of launch costs reads back") {
  const LaunchCosts costs(kRun, {row("einsum \"quoted\"", LaunchWork::kProduct, 3e-4, 5.0, 128.0),
                                 row("all_gather", LaunchWork::kCollective, 1e-5, 64.0)});
  const LaunchCosts read = LaunchCosts::parse(costs.json(), "costs.json");
  REQUIRE(read.json() == costs.json());
  REQUIRE(read.run().mesh == "data=1");
  REQUIRE(read.launches()[0].type == "einsum \"quoted\"");
  REQUIRE(read.launches()[0].spread == 3e-4 / 8);
  REQUIRE(read.has(LaunchWork::kCollective));
  REQUIRE_FALSE(read.has(LaunchWork::kKernel));
}

TEST_CASE("what is not a file of launch costs is an error of one line with its place") {
  const std::string good =
      LaunchCosts(kRun, {row("einsum", LaunchWork::kProduct, 0.25, 5.0, 128.0)}).json();
  const auto problem = [](const std::string& text) {
    return error_of([&] { LaunchCosts::parse(text, "costs.json"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return problem(text);
  };
  REQUIRE_THAT(problem("{}"), Contains("costs.json has no 'tessera_launch_costs'"));
  REQUIRE_THAT(problem("[1]"), Contains("expected an object"));
  REQUIRE_THAT(problem("{"), Contains("costs.json"));
  REQUIRE_THAT(with("\"tessera_launch_costs\": 1", "\"tessera_launch_costs\": 2"),
               Contains("tessera_launch_costs is 2, expected 1"));
  REQUIRE_THAT(with("\"median\": 0.25", "\"median\": 0"), Contains("launches[0].median is 0"));
  REQUIRE_THAT(with("\"median\": 0.25", "\"median\": -1"), Contains("expected a number from"));
  REQUIRE_THAT(with("\"median\": 0.25", "\"median\": \"1\""), Contains("launches[0].median"));
  REQUIRE_THAT(with("\"count\": 4", "\"count\": 0"), Contains("launches[0].count is 0"));
  REQUIRE_THAT(with("product", "work"), Contains("expected one of product, kernel, collective"));
  REQUIRE_THAT(with("\"launch\": \"einsum\", ", ""), Contains("launch"));
  const std::string line =
      good.substr(good.find("{\"launch\""), good.rfind('}') - good.find("{\"l"));
  const std::string object = line.substr(0, line.find('}') + 1);
  REQUIRE_THAT(with(object, object + ", " + object), Contains("two costs of the launch 'einsum'"));
  const TemporaryDirectory folder;
  ProcessGroup alone;
  REQUIRE_FALSE(shared_launch_costs("", alone));
  REQUIRE_THAT(error_of([&] { shared_launch_costs(folder.path(), alone); }),
               Contains("launch_costs.json is not a file; runexp --mode=calibrate --trace=RUN"));
}

}  // namespace
}  // namespace tessera
