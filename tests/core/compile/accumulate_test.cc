// SPDX-License-Identifier: Apache-2.0
// Gradients that are summed over microbatches: adds that a loop over layers does slice by slice,
// and sums of what a collective makes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/memory/flat_program.h"
#include "core/compile/memory/step_program.h"
#include "core/compile/remat/remat.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

constexpr int64_t kMicrobatches = 3, kDevices = 4;
constexpr int64_t kEmbed = 32, kMlp = 64;
// Bytes of one layer on a device: two weights in f32, divided over the devices.
constexpr int64_t kShardBytes = 2 * kEmbed * kMlp * 4 / kDevices;

// A mesh that divides nothing.
Mesh one_device() { return Mesh({{"data", 1}}); }

enum class Layers { kRepeated, kUnrolled };
enum class SumIs { kNext, kReadToo };  // Whether the loop over microbatches uses a sum besides.

Tensor block(const Tensor& x, const Tensor& up, const Tensor& down) {
  const auto whole = [](const Tensor& w) { return reshard(w, "embed mlp"); };
  return x + einsum(tanh(einsum(x, whole(up), over("embed"))), whole(down), over("mlp"));
}

// A step of gradient descent on sharded weights of one type, whose sums begin as one value.
Graph step(const Mesh& mesh, Layers layers, int64_t count, SumIs use = SumIs::kNext) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const std::string type = "embed/data=32 mlp=64";
  std::vector<Tensor> weights;
  const auto add_weight = [&](const std::string& name, const std::string& axes) {
    weights.push_back(input(name, InputKind::kParameter, parse_type("f32[\"" + axes + "\"]")));
  };
  if (layers == Layers::kRepeated) {
    for (const std::string name : {"up", "down"})
      add_weight(name, "layers=" + std::to_string(count) + " " + type);
  } else {
    for (int64_t i = 0; i < count; ++i)
      for (const std::string name : {"up", "down"}) add_weight(name + std::to_string(i), type);
  }
  const Tensor batch =
      input("x", InputKind::kBatch, parse_type("f32[\"microbatch=3 batch/data=8 embed=32\"]"));
  std::vector<Tensor> sums;
  for (const Tensor& weight : weights) sums.push_back(zeros(weight.type()));

  const auto body = [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
    std::vector<Tensor> inside;
    for (const Tensor& weight : weights) inside.push_back(imported(weight));
    Tensor x = slices[0];
    if (layers == Layers::kRepeated) {
      x = repeat("layers", count, {x}, {}, [&](Tensor, std::vector<Tensor> y, auto) {
            const RematScope remat;
            return RepeatBody{{block(y[0], loop_slice(inside[0]), loop_slice(inside[1]))}, {}};
          }).carries[0];
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const PathScope path("layers[" + std::to_string(i) + "]");
        const RematScope remat;
        x = block(x, inside[static_cast<size_t>(2 * i)], inside[static_cast<size_t>(2 * i + 1)]);
      }
    }
    const std::vector<Tensor> slopes = gradients(place(reduce_sum(square(x))), inside);
    const PhaseScope phase(Phase::kBackward);
    std::vector<Tensor> read;
    for (size_t i = 0; i < carries.size(); ++i) {
      if (use == SumIs::kReadToo) read.push_back(tanh(carries[i]));
      carries[i] = carries[i] + slopes[i];
    }
    return RepeatBody{carries, read};
  };
  const RepeatResult result = repeat("microbatch", kMicrobatches, sums, {batch}, body);
  const PhaseScope phase(Phase::kUpdate);
  for (size_t i = 0; i < weights.size(); ++i)
    graph.add_update(graph.value(weights[i].id()).name,
                     (weights[i] - result.carries[i] * 0.1).id());
  for (size_t i = 0; i < result.stacked.size(); ++i)
    output("read" + std::to_string(i), reshard(result.stacked[i], "microbatch layers embed mlp"));
  return graph;
}

Graph lowered(const Mesh& mesh, Layers layers, int64_t count, SumIs use = SumIs::kNext) {
  return lower(rematerialize(step(mesh, layers, count, use), parse_remat_policy("save_nothing")),
               mesh);
}

const Graph& microbatch_body(const Graph& graph) {
  const auto loop = std::ranges::find_if(graph.nodes(), is_repeat);
  REQUIRE(loop != graph.nodes().end());
  return Loop(*loop).body();
}

// The adds of two operands of the type of a stack of weights.
int64_t adds_of_stacks(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    return node.op == &kAddOp && graph.type(node.outputs[0]).has("layers");
  });
}

TEST_CASE("A loop over layers adds its gradients to the sums slice by slice, with the same bits") {
  const Graph before = lowered(one_device(), Layers::kRepeated, 4);
  const Graph after = accumulate_in_loops(before);
  verify(after, Mesh());
  REQUIRE(adds_of_stacks(microbatch_body(before)) == 2);
  REQUIRE(adds_of_stacks(microbatch_body(after)) == 0);
  const ReferenceInputs inputs = rounded(before, sample_inputs(before));
  const auto expected = evaluate(before, inputs), got = evaluate(after, inputs);
  REQUIRE(expected.size() == 2);
  for (const auto& [name, array] : expected) REQUIRE(got.at(name).values == array.values);
}

TEST_CASE("A sum that something else reads stays outside of the loop") {
  const Graph before = lowered(one_device(), Layers::kRepeated, 4, SumIs::kReadToo);
  const Graph after = accumulate_in_loops(before);
  REQUIRE(adds_of_stacks(microbatch_body(after)) == 2);
}

// Repeated layers, whose sums are overwritten slice by slice, give the bits of unrolled ones. Both
// weights begin with the same zeros, of which only the last reader may overwrite a slice.
TEST_CASE("Sums in place have the bits of sums that are not") {
  const Mesh mesh = one_device();
  const auto device = make_test_device(2);
  CompileOptions options;
  options.mesh = mesh;
  const Graph repeated = step(mesh, Layers::kRepeated, 4),
              unrolled = step(mesh, Layers::kUnrolled, 4);
  const ReferenceInputs inputs = sample_inputs(repeated);
  ReferenceInputs single = {{"x", inputs.at("x")}};
  const auto slice = [](const std::vector<double>& stack, size_t layer) {
    const auto size = static_cast<std::ptrdiff_t>(stack.size() / 4);
    const auto begin = stack.begin() + static_cast<std::ptrdiff_t>(layer) * size;
    return std::vector<double>(begin, begin + size);
  };
  for (const std::string name : {"up", "down"})
    for (size_t layer = 0; layer < 4; ++layer)
      single[name + std::to_string(layer)] = slice(inputs.at(name), layer);
  const auto expected = run_graph(unrolled, single, *device, options),
             got = run_graph(repeated, inputs, *device, options);
  for (const std::string name : {"up", "down"})
    for (size_t layer = 0; layer < 4; ++layer)
      REQUIRE(slice(got.at(name), layer) == expected.at(name + std::to_string(layer)));
}

TEST_CASE("Of two stacks that a launch makes of one, one takes its place") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"layers=5 embed=32\"]"));
  const auto stacks = [](const Tensor& from, auto slices_of) {
    return repeat("layers", 5, {}, {from},
                  [&](Tensor, auto, std::vector<Tensor> slices) {
                    return RepeatBody{{}, slices_of(slices[0])};
                  })
        .stacked;
  };
  const Tensor whole = stacks(x, [](const Tensor& y) { return std::vector{tanh(y)}; })[0];
  const Tensor sum = reduce_sum(whole);  // Makes `whole` one stack, not five slices.
  const std::vector<Tensor> two = stacks(whole, [](const Tensor& y) {
    return std::vector{y + 1.0, y * 2.0};
  });
  output("sum", sum);
  output("y", two[0] * two[1]);
  const auto device = make_test_device(2);
  const ReferenceInputs inputs = sample_inputs(graph);
  const std::vector<double> got = run_graph(graph, inputs, *device).at("y");
  const std::vector<double> expected = evaluate(graph, rounded(graph, inputs)).at("y").values;
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - expected[i]) <= 1e-5);
}

int64_t arena_bytes(const Graph& graph) {
  const KernelFacts facts{.scratch_bytes = {},
                          .may_overwrite = [](const Graph&, const Node& node, int64_t, int64_t) {
                            return node.op->op_class == OpClass::kElementwise;
                          }};
  return plan_memory(schedule(graph), facts, {}, Communication::kOverlapped).arena_bytes;
}

TEST_CASE("Each further layer needs memory for its weights and its sums, not for its gradients") {
  const Mesh mesh({{"data", kDevices}});
  constexpr int64_t kInput = 8 / kDevices * kEmbed * 4;  // Saved for the backward pass.
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const auto bytes = [&](int64_t count) {
      return arena_bytes(accumulate_in_loops(lowered(mesh, layers, count)));
    };
    REQUIRE(bytes(24) - bytes(12) <= 12 * (2 * kShardBytes + kInput));
  }
  // Stacks that are added outside of the loop: a third time the size of the weights.
  const int64_t outside = arena_bytes(lowered(mesh, Layers::kRepeated, 24)) -
                          arena_bytes(lowered(mesh, Layers::kRepeated, 12));
  REQUIRE(outside >= 12 * 3 * kShardBytes);
}

TEST_CASE("The sums over microbatches that wait for a collective are found") {
  const Graph graph = lowered(Mesh({{"data", kDevices}}), Layers::kUnrolled, 6);
  int64_t loops = 0;
  for (const Node& node : graph.nodes()) {
    if (!is_repeat(node)) continue;
    ++loops;
    const NodeFlags found = sums_of_collectives(*node.bodies[0]);
    int64_t count = 0;
    for (const NodeId id : node.bodies[0]->nodes().ids()) count += found[id] ? 1 : 0;
    REQUIRE(count == 2 * 6);  // Two weights in each layer.
  }
  REQUIRE(loops == 1);
}

TEST_CASE("A sum that is read, or is not over iterations, does not wait for its collective") {
  const Mesh mesh({{"data", kDevices}});
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const PhaseScope phase(Phase::kBackward);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"micro=4 batch/data=8\"]"));
  const Tensor zero = constant(0.0, DType::kF32);
  const auto total = [](const Tensor& terms) { return reduced(reduce_sum(terms)); };
  const RepeatResult result =
      repeat("micro", 4, {zero, zero, zero, zero}, {x},
             [&](Tensor, std::vector<Tensor> sums, std::vector<Tensor> slices) {
               const Tensor& terms = slices[0];
               const Tensor read = sums[2] + total(exp(terms));
               return RepeatBody{{sums[0] + total(terms), sums[1] * 2.0 + total(square(terms)),
                                  read, sums[3] + square(read)},
                                 {}};
             });
  for (int i = 0; i < 4; ++i)
    output(fmt::format("sum {}", i), result.carries[static_cast<size_t>(i)]);
  const Graph lowered = lower(graph, mesh);
  int64_t loops = 0;
  for (const Node& node : lowered.nodes()) {
    if (!is_repeat(node)) continue;
    ++loops;
    const Graph& body = *node.bodies[0];
    const NodeFlags found = sums_of_collectives(body);
    for (const NodeId id : body.nodes().ids())
      REQUIRE(found[id] == (body.node(id).outputs[0] == body.outputs()[0].value));
  }
  REQUIRE(loops == 1);
}

TEST_CASE("Gradients are scattered while earlier layers compute, and then added") {
  const Mesh mesh({{"data", kDevices}});
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    FlatProgram program = flatten(
        std::make_shared<const Graph>(schedule(accumulate_in_loops(lowered(mesh, layers, 6)))), {});
    overlap(program);
    int64_t products = 0, waits = 0, hidden = 0;
    IndexedVector<LaunchId, int64_t> products_at(program.launches.size());
    for (const LaunchId i : program.launches.ids()) {
      const FlatLaunch& launch = program.launches[i];
      const Node& node = launch.graph->node(launch.node);
      if (node.op == &kEinsumOp) ++products;
      products_at[i] = products;
      if (launch.kind != LaunchKind::kWait || node.op->name != "reduce_scatter") continue;
      ++waits;
      if (products > products_at[launch.waits_for]) ++hidden;
    }
    REQUIRE(waits == 2 * 6 * kMicrobatches);
    REQUIRE(hidden >= waits - 2);  // All but those of the last microbatch's first layer.
  }
}

}  // namespace
}  // namespace tessera
