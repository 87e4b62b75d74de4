// SPDX-License-Identifier: Apache-2.0
// The graphs of the stages of a pipeline: what they send, hold and compute. That their numbers are
// those of one device is tested where models run (tests/experiments).
#include "core/compile/stages/stage_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/compile/memory/step_program.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/optimizer.h"
#include "core/ops/pipeline.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/schedules/generators.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kWidth = 8;

struct Shape {
  int64_t layers = 4;
  int64_t microbatches = 4;
  std::vector<int64_t> pieces = {};
};

Mesh mesh_of(int64_t stages, const Shape& shape) {
  Mesh mesh({{"stage", stages}, {"data", 1}});
  if (!shape.pieces.empty()) mesh.divide_layers(shape.pieces);
  return mesh;
}

// A training step: x·E goes through `layers` products and a tanh each, then through Eᵀ (a tied
// table) and a scale to a loss. The gradients are summed over microbatches and subtracted.
class Step {
 public:
  Step(const Mesh& mesh, const Shape& shape)
      : trial_(mesh, {}), mesh_(mesh), layers_(shape.layers) {
    const Tensor x = input("batch/x", InputKind::kBatch,
                           parse("microbatch", shape.microbatches, "batch=2 in=8"));
    std::vector<Tensor> weights = {
        input("table", InputKind::kParameter, parse_type("f32[\"in=8 embed=8\"]")),
        input("stack", InputKind::kParameter,
              parse_type("f32[\"layers/stage=" + std::to_string(layers_) + " embed=8 out=8\"]")),
        input("scale", InputKind::kParameter, parse_type("f32[\"in=8\"]"))};
    std::vector<Tensor> carries = {constant(0.0, DType::kF32)};
    for (const Tensor& weight : weights)
      carries.push_back(constant(0.0, DType::kF32, weight.type().axes));
    const auto body = [&](Tensor, std::vector<Tensor> sums, std::vector<Tensor> slices) {
      std::vector<Tensor> inside;
      for (const Tensor& weight : weights) inside.push_back(imported(weight));
      const Tensor loss = model(inside, slices[0]);
      const std::vector<Tensor> terms = gradients(loss, inside);
      sums[0] = sums[0] + loss;
      for (size_t i = 0; i < terms.size(); ++i) {
        const PhaseScope phase(Phase::kBackward);
        sums[i + 1] = sums[i + 1] + terms[i];
      }
      return RepeatBody{sums, {}};
    };
    const std::vector<Tensor> sums =
        repeat("microbatch", shape.microbatches, carries, {x}, body).carries;
    const PhaseScope phase(Phase::kUpdate);
    output("loss", sums[0]);
    output("norm", squared_norm({sums[1], sums[3]}));
    const std::vector<std::string> names = {"table", "stack", "scale"};
    for (size_t i = 0; i < weights.size(); ++i)
      trial_.graph().add_update(names[i], (weights[i] - sums[i + 1]).id());
  }

  StageGraph stage(const PipelineTable& table, int64_t stage) {
    return lower_stage(trial_.graph(), mesh_, table, mesh_.device({stage, 0}));
  }
  Graph whole() { return lower(trial_.graph(), Mesh({{"stage", 1}, {"data", 1}})); }

 private:
  static Type parse(const std::string& axis, int64_t size, const std::string& others) {
    return parse_type("f32[\"" + axis + "=" + std::to_string(size) + " " + others + "\"]");
  }

  Tensor model(const std::vector<Tensor>& weights, const Tensor& x) const {
    const Tensor stack = whole_along(weights[1], "layers");
    Tensor h = einsum(x, weights[0], over("in"));
    h = repeat("layers", layers_, {h}, {stack},
               [](Tensor, std::vector<Tensor> carry, std::vector<Tensor> slices) {
                 const Tensor y = einsum(carry[0], slices[0], over("embed"));
                 return RepeatBody{{carry[0] + tanh(rename(y, "out", "embed"))}, {}};
               })
            .carries[0];
    const Tensor y = einsum(h, weights[0], over("embed")) * weights[2];
    return reduce_sum(y * y);
  }

  Trial trial_;
  Mesh mesh_;
  int64_t layers_;
};

const Node& pipeline_of(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (is_pipeline(node)) return node;
  FAIL("no pipeline node");
  return graph.node(NodeId(0));
}

int64_t count_inputs(const Graph& graph, std::string_view name) {
  return std::ranges::count(graph.inputs(), name, &GraphInput::name);
}

// A call of a stage: a task, or its side of a transfer.
struct Move {
  bool is_transfer = false;
  bool sends = false;
  int64_t peer = 0;
  std::string slot;
  int64_t microbatch = 0;
};

std::vector<Move> steps_of(const Graph& graph) {
  const Pipeline pipeline(pipeline_of(graph));
  std::vector<Move> steps;
  for (const PipelineCall& call : pipeline.calls()) {
    const Graph& body = pipeline.body(static_cast<size_t>(call.body));
    const Node& first = body.node(NodeId(0));
    if (!is_transfer(first)) {
      steps.push_back({.microbatch = call.microbatch});
      continue;
    }
    steps.push_back({true, first.op == &kSendOp, first.attributes.get(key::kPeer),
                     first.attributes.get(key::kSlot), call.microbatch});
  }
  return steps;
}

// Whether all stages finish if both sides of a transfer wait for each other.
bool finishes(const std::vector<std::vector<Move>>& stages) {
  std::vector<size_t> next(stages.size(), 0);
  const auto at_transfer = [&](size_t stage) -> const Move* {
    return next[stage] < stages[stage].size() ? &stages[stage][next[stage]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      const Move* const own = at_transfer(s);
      if (own == nullptr) continue;
      if (own->is_transfer) {
        const auto peer = static_cast<size_t>(own->peer);
        const Move* const other = at_transfer(peer);
        if (other == nullptr || !other->is_transfer || other->peer != static_cast<int64_t>(s))
          continue;
        REQUIRE(other->slot == own->slot);
        REQUIRE(other->microbatch == own->microbatch);
        REQUIRE(other->sends != own->sends);
        ++next[peer];
      }
      ++next[s];
      moved = true;
    }
  }
  for (size_t s = 0; s < stages.size(); ++s)
    if (next[s] != stages[s].size()) return false;
  return true;
}

std::vector<PipelineTable> tables(int64_t stages, int64_t microbatches) {
  return {gpipe_table(stages, microbatches), one_forward_one_backward_table(stages, microbatches),
          zero_bubble_h1_table(stages, microbatches), interleaved_table(stages, microbatches, 2),
          circular_table(stages, microbatches, 2)};
}

Shape shape_of(const PipelineTable& table) {
  Shape shape{.layers = 2 * table.pieces(), .microbatches = table.microbatches};
  if (table.chunks > 1) shape.pieces.assign(static_cast<size_t>(table.pieces()), 2);
  return shape;
}

TEST_CASE("The graphs of all stages are well-formed, and stages never wait in a circle") {
  for (const int64_t stages : {2, 4}) {
    for (const PipelineTable& table : tables(stages, 2 * stages)) {
      INFO(table.name << ", " << stages << " stages");
      const Shape shape = shape_of(table);
      Step step(mesh_of(stages, shape), shape);
      std::vector<std::vector<Move>> all;
      for (int64_t s = 0; s < stages; ++s) {
        const Graph graph = step.stage(table, s).graph;
        verify(graph, Mesh());
        all.push_back(steps_of(graph));
      }
      REQUIRE(finishes(all));
    }
  }
}

TEST_CASE("Stages send activations forwards and their gradients backwards, and nothing else") {
  for (const PipelineTable& table : tables(4, 8)) {
    INFO(table.name);
    const Shape shape = shape_of(table);
    Step step(mesh_of(4, shape), shape);
    for (int64_t s = 0; s < 4; ++s) {
      std::map<std::pair<bool, int64_t>, int64_t> counts;  // By direction and peer.
      for (const Move& each : steps_of(step.stage(table, s).graph))
        if (each.is_transfer) ++counts[{each.sends, each.peer}];
      // Each border between pieces sends each microbatch's activation and its gradient.
      std::map<std::pair<bool, int64_t>, int64_t> expected;
      for (int64_t p = 0; p + 1 < table.pieces(); ++p) {
        const int64_t from = p % 4, to = (p + 1) % 4;
        if (from == s) expected[{true, to}] += 8, expected[{false, to}] += 8;
        if (to == s) expected[{false, from}] += 8, expected[{true, from}] += 8;
      }
      REQUIRE(counts == expected);
    }
  }
}

TEST_CASE("Weights outside the layers are on the stages that use them") {
  Step step(mesh_of(4, {}), {});
  const PipelineTable table = one_forward_one_backward_table(4, 4);
  for (int64_t s = 0; s < 4; ++s) {
    const auto [graph, homes] = step.stage(table, s);
    REQUIRE(homes == StageHomes{{"scale", {3}}, {"table", {0, 3}}});
    const bool has_table = s == 0 || s == 3;
    REQUIRE(count_inputs(graph, "table") == (has_table ? 1 : 0));
    REQUIRE(count_inputs(graph, "scale") == (s == 3 ? 1 : 0));
    REQUIRE(count_inputs(graph, "stack") == 1);
    REQUIRE(graph.type(graph.find_input("stack")->value).axes[0].size == 1);
    REQUIRE((graph.find_output("table") != nullptr) == has_table);
    REQUIRE(graph.find_output("norm") != nullptr);
    // The table's gradient is summed over its two stages, the loss and the norm over all.
    std::vector<std::vector<int64_t>> groups;
    for (const Node& node : graph.nodes())
      if (node.op == &kAllReduceOp && graph.type(node.outputs[0]).rank() > 0)
        groups.push_back(node.attributes.get(key::kGroup));
    using Groups = std::vector<std::vector<int64_t>>;
    REQUIRE(groups == (has_table ? Groups{{0, 3}} : Groups{}));
  }
}

TEST_CASE("All stages together compute what one device does, nothing twice") {
  for (const PipelineTable& table : tables(4, 8)) {
    INFO(table.name);
    const Shape shape = shape_of(table);
    Step step(mesh_of(4, shape), shape);
    const auto flops_of_loops = [](const Graph& graph) {
      double flops = 0.0;
      for (const Node& node : graph.nodes())
        if (runs_bodies(node)) flops += node_flops(graph, node);
      return flops;
    };
    double together = 0.0;
    for (int64_t s = 0; s < 4; ++s) together += flops_of_loops(step.stage(table, s).graph);
    const double alone = flops_of_loops(step.whole());
    // The two terms of a tied table have separate sums: each microbatch has one addition to a sum
    // more, and one addition of the terms less.
    REQUIRE(together == Approx(alone).epsilon(1e-3));
  }
}

TEST_CASE("Stages may have unequal numbers of layers, and the rest of a shard is padding") {
  const Shape shape{.layers = 7, .microbatches = 2, .pieces = {3, 4}};
  Step step(mesh_of(2, shape), shape);
  const PipelineTable table = gpipe_table(2, 2);
  for (int64_t s = 0; s < 2; ++s) {
    const Graph graph = step.stage(table, s).graph;
    REQUIRE(graph.type(graph.find_input("stack")->value).axes[0].size == 4);
    std::set<int64_t> counts;
    std::set<int64_t> firsts;
    for (const auto& body : pipeline_of(graph).bodies)
      for (const Node& node : body->nodes())
        if (is_repeat(node)) {
          counts.insert(Loop(node).count());
          firsts.insert(Loop(node).first());
        }
    REQUIRE(counts == std::set<int64_t>{s == 0 ? 3 : 4});
    REQUIRE(firsts == std::set<int64_t>{s == 0 ? 0 : 3});
  }
}

int64_t peak_of(const PipelineTable& table, int64_t stage) {
  const Shape shape = shape_of(table);
  Step step(mesh_of(table.stages, shape), shape);
  const StepProgram plan = plan_memory(step.stage(table, stage).graph, {});
  return plan.arena_bytes - plan.persistent_bytes - plan.use.batch;
}

TEST_CASE("1F1B holds as many microbatches as there are stages behind, GPipe holds all") {
  // Beyond the first S microbatches a stage of 1F1B needs no more memory, at any stage.
  for (int64_t s = 0; s < 4; ++s)
    REQUIRE(peak_of(one_forward_one_backward_table(4, 16), s) ==
            peak_of(one_forward_one_backward_table(4, 8), s));
  // A microbatch holds at a stage the difference that one more makes in GPipe.
  const int64_t held = peak_of(gpipe_table(4, 9), 0) - peak_of(gpipe_table(4, 8), 0);
  REQUIRE(held > 0);
  REQUIRE(peak_of(gpipe_table(4, 16), 0) == peak_of(gpipe_table(4, 8), 0) + 8 * held);
  // 1F1B holds four, besides what a task computes: no more than GPipe with six.
  REQUIRE(peak_of(one_forward_one_backward_table(4, 16), 0) <= peak_of(gpipe_table(4, 6), 0));
}

TEST_CASE("A table for other stages, pieces or microbatches is refused") {
  Step step(mesh_of(4, {}), {});
  REQUIRE(error_of([&] { step.stage(gpipe_table(2, 4), 0); }) ==
          "the pipeline schedule 'GPipe' is for 2 stages, but the mesh has 4 (stage=4 data=1)");
  REQUIRE(error_of([&] { step.stage(gpipe_table(4, 8), 0); }) ==
          "the pipeline schedule 'GPipe' is for 8 microbatches, but the batch has 4");
  REQUIRE_THAT(error_of([&] { step.stage(circular_table(4, 4, 2), 0); }),
               Catch::Contains("has 8 pieces, but the layers are divided into 4"));
}

}  // namespace
}  // namespace tessera
