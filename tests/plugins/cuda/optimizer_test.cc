// SPDX-License-Identifier: Apache-2.0
// Tests adam_update on the virtual GPU: at addresses of views, and many parameters in one launch.
#include "plugins/cuda/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"
#include "core/runtime/executor/executor.h"
#include "plugins/cuda/kernels/squared_norms.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/adam_step.h"
#include "tests/support/catch.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

// A gradient may be a slice, which is a view at any multiple of 4 bytes.
TEST_CASE("adam_update on a GPU has the same bits at addresses that no vector access allows") {
  const TestDevices devices;
  const std::string slot = "f32[\"row=7 column=151\"]", scalar = "f32[\"\"]";
  Trial trial(Mesh(), {slot, slot, slot, slot, scalar, scalar, scalar, "bool[\"\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const AdamState next =
      adam_update({in[0], in[1], in[2]}, in[3], in[4], in[5], in[6], in[7], {.weight_decay = 0.1});
  trial.graph().add_output("parameter", next.parameter.id());
  trial.graph().add_output("first", next.first_moment.id());
  trial.graph().add_output("second", next.second_moment.id());
  ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  for (double& moment : inputs.at(trial.graph().inputs()[2].name)) moment = std::abs(moment);
  inputs.at(trial.graph().inputs()[5].name) = {3.0};
  inputs.at(trial.graph().inputs()[7].name) = {1.0};
  const GraphResults aligned = run_launched(*devices.gpu, trial.graph(), inputs);
  REQUIRE(aligned.at("parameter") != inputs.at(trial.graph().inputs()[0].name));
  for (const int64_t shift : {1, 2, 3})
    REQUIRE(element_difference(run_launched(*devices.gpu, trial.graph(), inputs, {.shift = shift}),
                               aligned) == "");
}

constexpr int64_t kBlock = decltype(AdamParameters::table)::kBlockElements;

// A step of these parameters with fused updates.
struct FusedStep {
  explicit FusedStep(const std::vector<int64_t>& sizes, const AdamStepOptions& options = {}) {
    Graph traced;
    add_adam_step(traced, sizes, options);
    alone = lower(traced, Mesh());
    fused = fuse_updates(alone);
    inputs = adam_step_inputs(alone);
  }
  Graph alone, fused;
  ReferenceInputs inputs;
};

int64_t updates_in(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [](const Node& node) {
    return node.op == &kAdamUpdateOp || node.op == &kFusedUpdatesOp;
  });
}

TEST_CASE("fused updates on a GPU are those of the CPU, and have the bits of single updates") {
  const TestDevices devices;
  // Several blocks, and sizes that are not multiples of an access.
  const FusedStep step({kBlock * 2 + 3, 1, 4, 151, kBlock});
  REQUIRE(updates_in(step.fused) == 1);
  const GraphResults cpu = run_launched(*devices.cpu, step.alone, step.inputs);
  const GraphResults alone = run_launched(*devices.gpu, step.alone, step.inputs);
  REQUIRE(element_difference(alone, cpu, {1e-6, 1e-6}) == "");
  for (const int64_t shift : {0, 1, 3})
    REQUIRE(element_difference(
                run_launched(*devices.gpu, step.fused, step.inputs, {.shift = shift}), alone) ==
            "");
}

TEST_CASE("fused updates on a GPU round moments in bf16 as the CPU does") {
  const TestDevices devices;
  for (const auto& [first, second] :
       {std::pair("bf16", "bf16"), std::pair("bf16", "f32"), std::pair("f32", "bf16")})
    for (const Rounding rounding : {Rounding::kStochastic, Rounding::kNearest}) {
      CAPTURE(first, second, rounding);
      const FusedStep step({kBlock + 3, 1, 4, 151},
                           {.first = first, .second = second, .rounding = rounding});
      REQUIRE(updates_in(step.fused) == 1);
      const GraphResults cpu = run_launched(*devices.cpu, step.alone, step.inputs);
      const GraphResults gpu = run_launched(*devices.gpu, step.fused, step.inputs);
      // f32 moments differ in their last bits, which rarely changes their rounding.
      int64_t elements = 0, different = 0;
      for (const auto& [name, values] : cpu) {
        const bool moment = (name[0] == 'm' && first == std::string("bf16")) ||
                            (name[0] == 'v' && second == std::string("bf16"));
        for (size_t i = 0; i < values.size(); ++i) {
          const double difference = std::abs(gpu.at(name)[i] - values[i]);
          REQUIRE(difference <= (moment ? 0x1p-7 * std::abs(values[i]) : 1e-6));
          elements += moment ? 1 : 0;
          different += moment && difference != 0.0 ? 1 : 0;
        }
      }
      REQUIRE(elements > kBlock);
      REQUIRE(different < elements / 500);
      for (const int64_t shift : {1, 4})
        REQUIRE(element_difference(
                    run_launched(*devices.gpu, step.fused, step.inputs, {.shift = shift}), gpu) ==
                "");
    }
}

TEST_CASE("stochastic rounding on a GPU has the CPU's bits on shards, and on layers in pieces") {
  const TestDevices devices;
  struct Case {
    std::string type;
    Attributes place;
  };
  using Numbers = std::vector<int64_t>;
  const std::vector<Case> cases = {
      {"f32[\"a=8 b=12\"]", {}},
      {"f32[\"a=3 b=7\"]", {{key::kOrigin, Numbers{3, 0}}, {key::kExtent, Numbers{9, 7}}}},
      {"f32[\"a=3 b=8\"]", {{key::kOrigin, Numbers{0, 8}}, {key::kExtent, Numbers{3, 16}}}},
      {"f32[\"a=3 b=5\"]", {{key::kOrigin, Numbers{3, 5}}, {key::kExtent, Numbers{6, 10}}}},
      {"f32[\"a=2 b=3 c=2 d=3 e=4 g=2\"]",
       {{key::kOrigin, Numbers{2, 3, 2, 0, 4, 2}}, {key::kExtent, Numbers{4, 6, 4, 6, 8, 4}}}},
      {"f32[\"layers=4 b=2 c=6\"]",
       {{key::kOrigin, Numbers{0, 0, 6}},
        {key::kExtent, Numbers{9, 2, 12}},
        {key::kRows, Numbers{2, 3, 7, 0}}}}};
  for (const Case& row : cases)
    for (const NoiseHalf half : {NoiseHalf::kLow, NoiseHalf::kHigh}) {
      CAPTURE(row.type, half);
      Trial trial(Mesh(), {row.type, "f32[\"\"]"});
      const PathScope path("x_layers[2].weight");
      const std::vector<Tensor>& in = trial.inputs();
      Attributes attributes = noise_attributes(in[0].type(), "");
      attributes.set(key::kHalf, half);
      for (const auto& entry : row.place.entries()) attributes.set(entry);
      trial.graph().add_output("y",
                               trace_op(kStochasticRoundOp, {in[0], in[1]}, attributes, {}).id());
      ReferenceInputs inputs = random_inputs(trial.graph(), 7);
      inputs.at(trial.graph().inputs()[1].name) = {5.0};
      const GraphResults cpu = run_launched(*devices.cpu, trial.graph(), inputs);
      REQUIRE(cpu.at("y") == evaluate(trial.graph(), inputs).at("y").values);
      for (const int64_t shift : {0, 1})
        REQUIRE(element_difference(
                    run_launched(*devices.gpu, trial.graph(), inputs, {.shift = shift}), cpu) ==
                "");
    }
}

TEST_CASE("more parameters than a launch has room for are several launches") {
  const TestDevices devices;
  std::vector<int64_t> sizes;
  const int count = decltype(SquaredNormParameters::table)::kMost + 2;
  REQUIRE(count > 2 * decltype(AdamParameters::table)::kMost);
  for (int i = 0; i < count; ++i) sizes.push_back(1 + i % 7);
  Graph graph;
  add_adam_step(graph, sizes);
  const ReferenceInputs inputs = adam_step_inputs(graph);
  REQUIRE(element_difference(run_graph(graph, inputs, *devices.gpu),
                             run_graph(graph, inputs, *devices.cpu), {1e-6, 1e-6}) == "");
}

TEST_CASE("fused updates may replace the state that they read, and nothing else") {
  const TestDevices devices;
  const FusedStep step({5, 3});
  const auto node = std::ranges::find_if(
      step.fused.nodes(), [](const Node& each) { return each.op == &kFusedUpdatesOp; });
  const std::unique_ptr<Kernel> kernel = devices.gpu->prepare(step.fused, *node);
  const Graph& body = *node->bodies[0];
  for (size_t o = 0; o < body.outputs().size(); ++o) {
    const Value& result = body.value(body.outputs()[o].value);
    const ValueId state = body.node(result.producer).inputs[result.result];
    for (size_t i = 0; i < body.inputs().size(); ++i)
      REQUIRE(kernel->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(i)) ==
              (body.inputs()[i].value == state));
  }
}

TEST_CASE("a step of the optimizer has as many launches for many parameters as for two") {
  const TestDevices devices;
  const auto launches = [&](const std::vector<int64_t>& sizes) {
    Graph graph;
    add_adam_step(graph, sizes);
    Executor executor(*devices.gpu);
    return executor.plan(executor.add_program(graph, {})).launches.size();
  };
  // Launches: the norm, the scale with the decision, and the updates.
  REQUIRE(launches({3, 5}) == 3);
  REQUIRE(launches({3, 5, 2, 7, 1, 8, 4, 6, 9, 11, 10, 2}) == 3);
}

TEST_CASE("a step of the optimizer on a GPU has the CPU's results") {
  const TestDevices devices;
  Graph graph;
  add_adam_step(graph, {70, 5, 33});
  const ReferenceInputs inputs = adam_step_inputs(graph);
  const GraphResults gpu = run_graph(graph, inputs, *devices.gpu);
  REQUIRE(gpu.at("p0") != inputs.at("p0"));
  REQUIRE(element_difference(gpu, run_graph(graph, inputs, *devices.cpu), {1e-6, 1e-6}) == "");
}

// Computes y = x·bf16(w), and a step of w with the gradient g.
class SteppedWeight {
 public:
  explicit SteppedWeight(Device& device) : executor_(device) {
    Graph graph;
    const Mesh mesh;
    const AxisRules rules;
    const TraceScope scope(graph, mesh, rules);
    const Type type = parse_type("f32[\"row=5\"]");
    const Tensor w = input("w", InputKind::kParameter, type);
    output("y", cast(w, DType::kBF16) * 3.0);
    const Tensor first = input("first", InputKind::kState, type);
    const Tensor second = input("second", InputKind::kState, type);
    const PhaseScope phase(Phase::kUpdate);
    const Tensor one = constant(1.0, DType::kF32);
    const AdamState next =
        adam_update({w, first, second}, w, one, one, one, less_equal(one, one), {.beta1 = 0.5});
    graph.add_update("w", next.parameter.id());
    graph.add_update("first", next.first_moment.id());
    graph.add_update("second", next.second_moment.id());
    executor_.add_program(graph, {});
    executor_.allocate();
  }

  void write(const std::vector<float>& values) {
    executor_.write_state("w", std::as_bytes(std::span(values)));
  }
  // Writes like a checkpoint reader.
  void write_shard(const std::vector<float>& values) {
    executor_.shards("w")[0].memory.map(HostAccess::kWrite, [&](std::span<std::byte> bytes) {
      std::ranges::copy(std::as_bytes(std::span(values)), bytes.begin());
    });
  }
  std::vector<uint16_t> step() {  // Returns the bits of y.
    std::vector<uint16_t> y(5);
    executor_.run(0);
    executor_.read_output(0, "y", std::as_writable_bytes(std::span(y)));
    return y;
  }
  const Executor& executor() const { return executor_; }

 private:
  Executor executor_;
};

TEST_CASE("the copies of parameters in bf16 follow updates, and writes of the host") {
  const TestDevices devices;
  SteppedWeight gpu(*devices.gpu), cpu(*devices.cpu);
  REQUIRE(gpu.executor().plan(0).graph->find_input(copy_name("w")) != nullptr);
  REQUIRE(cpu.executor().plan(0).graph->find_input(copy_name("w")) == nullptr);
  REQUIRE(gpu.executor().persistent().size() == cpu.executor().persistent().size());
  const std::vector<std::vector<float>> written = {{1.0f, 2.0f, -3.0f, 0.1f, 7.3f},
                                                   {0.3f, -0.7f, 5.5f, 9.1f, -2.2f}};
  for (SteppedWeight* each : {&gpu, &cpu}) each->write(written[0]);
  for (int i = 0; i < 3; ++i) REQUIRE(gpu.step() == cpu.step());
  for (SteppedWeight* each : {&gpu, &cpu}) each->write_shard(written[1]);
  for (int i = 0; i < 2; ++i) REQUIRE(gpu.step() == cpu.step());
  for (SteppedWeight* each : {&gpu, &cpu}) each->write(written[0]);
  REQUIRE(gpu.step() == cpu.step());
}

TEST_CASE("reading a parameter, as a checkpoint does, does not make its copies again") {
  const TestDevices devices;
  SteppedWeight gpu(*devices.gpu);
  gpu.write({1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  const auto graphs_of_step = [&] {
    const int64_t before = tessera_virtual_gpu_graph_launches();
    gpu.step();
    return tessera_virtual_gpu_graph_launches() - before;
  };
  REQUIRE(graphs_of_step() == 0);  // The first runs have no graphs.
  REQUIRE(gpu.executor().shards_to_read("w").size() == 1);
  REQUIRE(graphs_of_step() == 1);
  gpu.write_shard({1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  REQUIRE(graphs_of_step() == 2);
}

TEST_CASE("squared_norm on a GPU has the same bits at any address, and the reference's value") {
  const TestDevices devices;
  constexpr int64_t kPiece = decltype(SquaredNormParameters::table)::kBlockElements;
  const std::vector<std::string> sizes = {fmt::format("row={}", 2 * kPiece + 5), "row=1",
                                          "row=13 column=7", fmt::format("row={}", kPiece)};
  std::vector<std::string> types;
  for (size_t i = 0; i < sizes.size(); ++i)
    for (const char* dtype : {"f32", "bf16"})
      types.push_back(fmt::format("{}[\"{}\"]", dtype, sizes[i]));
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", squared_norm(trial.inputs()).id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 3);
  const GraphResults aligned = run_launched(*devices.gpu, trial.graph(), inputs);
  REQUIRE(element_difference(aligned, rounded_reference(trial.graph(), inputs), {1e-5, 0.0}) == "");
  for (const int64_t shift : {1, 3})
    REQUIRE(element_difference(run_launched(*devices.gpu, trial.graph(), inputs, {.shift = shift}),
                               aligned) == "");
}

}  // namespace
}  // namespace tessera::cuda
