// SPDX-License-Identifier: Apache-2.0
// Step programs, traced, compiled and executed, compared with the reference interpreter.
#include "core/runtime/executor/executor.h"

#include <cmath>

#include "core/base/error.h"
#include "core/check/numeric_gradient.h"
#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/device.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/random_program.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

bool is_state(const GraphInput& input) {
  return input.kind == InputKind::kParameter || input.kind == InputKind::kState;
}

void write_inputs(Executor& executor, int program, const Graph& graph,
                  const ReferenceInputs& inputs) {
  for (const GraphInput& input : graph.inputs()) {
    const auto bytes = encoded(graph.type(input.value).dtype, inputs.at(input.name));
    if (is_state(input)) {
      executor.write_state(input.name, bytes);
    } else {
      executor.write_input(program, input.name, bytes);
    }
  }
}

// The greatest relative difference of any output or updated state, after `steps` steps, between the
// executor and the interpreter.
double difference(const Graph& graph, const CompileOptions& options,
                  const ReferenceDeviceOptions& device_options = {}, int steps = 2) {
  const auto device = make_reference_device(device_options);
  Executor executor(*device);
  CompileOptions checked = options;
  checked.verify_passes = true;
  const int program = executor.add_program(graph, checked);
  executor.allocate();
  ReferenceInputs inputs = sample_inputs(graph);
  write_inputs(executor, program, graph, inputs);
  double worst = 0.0;
  for (int step = 0; step < steps; ++step) {
    executor.run(program);
    const auto expected = evaluate(graph, inputs);
    for (const GraphOutput& output : graph.outputs()) {
      const Type& type = graph.type(output.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      if (output.is_update) {
        executor.read_state(output.name, bytes);
      } else {
        executor.read_output(program, output.name, bytes);
      }
      const std::vector<double>& values = expected.at(output.name).values;
      const std::vector<double> got = decode_values(type, bytes.data());
      for (size_t i = 0; i < values.size(); ++i)
        worst = std::max(worst, std::abs(values[i] - got[i]) / (1.0 + std::abs(values[i])));
      if (output.is_update) inputs[output.name] = values;
    }
  }
  return worst;
}

// f32 rounding of values near 1 after a few dozen operations.
constexpr double kRounding = 1e-4;

// A step of gradient descent with momentum on a network whose stacked layers run in a loop.
Graph trace_step() {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch=2 embed=3\"]"));
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"layers=3 embed=3 out=3\"]"));
  const Tensor m = input("m", InputKind::kState, w.type());
  const Tensor b = input("b", InputKind::kParameter, parse_type("f32[\"embed=3\"]"));
  const RepeatResult layers =
      repeat("layers", 3, {x}, {}, [&](Tensor, std::vector<Tensor> h, std::vector<Tensor>) {
        const Tensor product =
            save_for_backward(einsum(h[0], loop_slice(w), over("embed")), "product");
        const Tensor y = silu(rename(product, "out", "embed") + b);
        return RepeatBody{{y * y + h[0]}, {}};
      });
  const Tensor loss = reduce_sum(square(layers.carries[0]));
  output("loss", loss);
  const std::vector<Tensor> gradient = gradients(loss, {w, b});
  const PhaseScope update(Phase::kUpdate);
  const Tensor momentum = m * 0.9 + gradient[0];
  graph.add_update("m", momentum.id());
  graph.add_update("w", (w - momentum * 0.01).id());
  graph.add_update("b", (b - gradient[1] * 0.01).id());
  return graph;
}

TEST_CASE("training steps agree with the interpreter") {
  REQUIRE(difference(trace_step(), {}) < kRounding);
}

TEST_CASE("every remat policy gives the same step") {
  for (const char* policy : {"save_nothing", "save_dot_only", "product", "save_everything"}) {
    INFO(policy);
    REQUIRE(difference(trace_step(), {.remat = parse_remat_policy(policy)}) < kRounding);
  }
}

TEST_CASE("results depend neither on scratch memory nor on in-place kernels") {
  REQUIRE(difference(trace_step(), {}, {.scratch_bytes = 100}) < kRounding);
  REQUIRE(difference(trace_step(), {}, {.may_overwrite = false}) < kRounding);
}

TEST_CASE("the node that makes a loop's indices has scratch memory of its own") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  {
    const TraceScope trace(graph, mesh, rules);
    const Tensor x = input("x", InputKind::kParameter, parse_type("f32[\"embed=30\"]"));
    const RepeatResult loop =
        repeat("layers", 3, {x}, {}, [](Tensor index, std::vector<Tensor> h, std::vector<Tensor>) {
          return RepeatBody{{h[0] + cast(index, DType::kF32)}, {}};
        });
    output("y", loop.carries[0]);
  }
  REQUIRE(difference(graph, {}, {.scratch_bytes = 100}) < kRounding);
}

TEST_CASE("states that swap, pass through a view or depend on each other are updated correctly") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Type type = parse_type("f32[\"row=2 column=3\"]");
  const Tensor a = input("a", InputKind::kState, type), b = input("b", InputKind::kState, type);
  const Tensor c = input("c", InputKind::kState, type), d = input("d", InputKind::kState, type);
  graph.add_update("a", b.id());
  graph.add_update("b", a.id());
  const Tensor next = c + d;
  graph.add_update("c", next.id());
  graph.add_update("d", (next * c).id());
  output("old c", c);
  output("first row", slice(a, "row", 0, 1));
  REQUIRE(difference(graph, {}, {}, 3) < kRounding);
}

TEST_CASE("a state is updated in place when its old value dies with the update") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor a = input("a", InputKind::kState, parse_type("f32[\"row=1024\"]"));
  graph.add_update("a", (a * 0.5).id());
  const auto device = make_reference_device();
  Executor executor(*device);
  const int program = executor.add_program(graph, {});
  REQUIRE(executor.plan(program).launches.size() == 1);
  REQUIRE(executor.plan(program).arena_bytes == 4096);
}

TEST_CASE("random programs agree with the interpreter") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const char* policies[] = {"save_everything", "save_nothing", "save_dot_only", "kept"};
    const CompileOptions options = {.remat = parse_remat_policy(policies[seed % 4])};
    INFO("seed " << seed << ", " << policies[seed % 4]);
    REQUIRE(difference(random_program(seed), options,
                       {.scratch_bytes = seed % 3 == 0 ? 40 : 0, .may_overwrite = seed % 5 != 0}) <
            kRounding);
  }
}

TEST_CASE("the allocated size is the planned peak, and all operands of launches are inside it") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto device = make_reference_device({.scratch_bytes = 24});
    Executor executor(*device);
    const int program = executor.add_program(random_program(seed), {});
    const int64_t planned = executor.arena_bytes();
    executor.allocate();
    const StepProgram& plan = executor.plan(program);
    REQUIRE(executor.arena_bytes() == planned);
    REQUIRE(plan.arena_bytes == planned);
    REQUIRE(plan.use.peak == plan.arena_bytes);
    int64_t end = plan.persistent_bytes;
    for (const Launch& launch : plan.launches) {
      const Node& node = launch.graph->node(launch.node);
      for (size_t i = 0; i < node.inputs.size(); ++i)
        end = std::max(end, launch.inputs[i] + launch.graph->type(node.inputs[i]).bytes());
      for (size_t i = 0; i < node.outputs.size(); ++i)
        end = std::max(end, launch.outputs[i] + launch.graph->type(node.outputs[i]).bytes());
    }
    REQUIRE(end <= plan.arena_bytes);
    const MemoryUse& use = plan.use;
    REQUIRE(use.parameters + use.state + use.batch + use.activations + use.gradients +
                use.temporaries ==
            use.peak);
    REQUIRE(use.temporaries >= 0);
  }
}

TEST_CASE("programs share states and have separate inputs") {
  const Mesh mesh;
  const AxisRules rules;
  const Type type = parse_type("f32[\"row=4\"]");
  Graph train, eval;
  {
    const TraceScope trace(train, mesh, rules);
    const Tensor w = input("w", InputKind::kParameter, type);
    const Tensor x = input("x", InputKind::kBatch, type);
    train.add_update("w", (w + x).id());
  }
  {
    const TraceScope trace(eval, mesh, rules);
    const Tensor ema = input("ema", InputKind::kState, type);
    const Tensor w = input("w", InputKind::kParameter, type);
    const Tensor x = input("x", InputKind::kBatch, type);
    output("sum", reduce_sum(w * x + ema));
  }
  const auto device = make_reference_device();
  Executor executor(*device);
  const int first = executor.add_program(train, {}), second = executor.add_program(eval, {});
  executor.allocate();
  REQUIRE(executor.persistent().size() == 2);
  executor.write_state("w", encoded(DType::kF32, {1, 2, 3, 4}));
  executor.write_state("ema", encoded(DType::kF32, {0, 0, 0, 1}));
  for (int step = 0; step < 2; ++step) {
    executor.write_input(first, "x", encoded(DType::kF32, {1, 1, 1, 1}));
    executor.run(first);
    executor.write_input(second, "x", encoded(DType::kF32, {1, 0, 0, 1}));
    executor.run(second);
  }
  REQUIRE(executor.read_scalar(second, "sum") == (1 + 2) + (4 + 2) + 1);
}

TEST_CASE("a plan that does not fit is refused with both sizes, before memory is used") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor w =
      input("w", InputKind::kParameter, parse_type("f32[\"vocab=1000000 embed=10000000\"]"));
  graph.add_update("w", (w * 0.5).id());
  const auto device = make_reference_device();
  Executor executor(*device);
  executor.add_program(graph, {});
  const std::string message = error_of([&] { executor.allocate(); });
  REQUIRE_THAT(message, Catch::Contains("the plan needs 37252.90 GiB"));
  REQUIRE_THAT(message, Catch::Contains("are available"));
}

TEST_CASE(
    "a misspelled input and a buffer of the wrong size are errors that say what is expected") {
  const auto device = make_reference_device();
  Executor executor(*device);
  const Graph graph = trace_step();
  const int program = executor.add_program(graph, {});
  executor.allocate();
  REQUIRE_THAT(error_of([&] { executor.write_input(program, "xs", {}); }),
               Catch::Contains("the program has no input 'xs'; did you mean 'x'?"));
  REQUIRE_THAT(error_of([&] { executor.write_state("b", {}); }),
               Catch::Contains("b is f32[\"embed=3\"], 12 bytes; got 0"));
}

}  // namespace
}  // namespace tessera
