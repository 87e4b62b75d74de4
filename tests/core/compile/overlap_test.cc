// SPDX-License-Identifier: Apache-2.0
// Overlap of collectives and computation: the order of launches is legal, equal on all devices,
// hides collectives behind computation and respects its memory bounds.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/memory/flat_program.h"
#include "core/compile/memory/step_program.h"
#include "core/compile/remat/remat.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr int64_t kLayers = 6, kEmbed = 64, kMlp = 128;
// Bytes of the two gathered bf16 weights of a layer.
constexpr int64_t kLayerBytes = 2 * kEmbed * kMlp * 2;

enum class Layers { kRepeated, kUnrolled };

Tensor block(const Tensor& x, const Tensor& up, const Tensor& down) {
  const auto whole = [](const Tensor& w) {
    return reshard(cast_weight(w, DType::kBF16, DType::kF32),
                   w.type().axes[0].name == "embed" ? "embed mlp" : "mlp embed");
  };
  const Tensor hidden = tanh(einsum(x, whole(up), over("embed")));
  return x + einsum(hidden, whole(down), over("mlp"));
}

// One step of plain gradient descent on fully sharded weights.
Graph step(const Mesh& mesh, Layers layers) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const auto weight = [&](const std::string& name, const std::string& axes) {
    return input(name, InputKind::kParameter, parse_type("f32[\"" + axes + "\"]"));
  };
  const std::string up = "embed/data=64 mlp=128", down = "mlp=128 embed/data=64";
  Tensor x = input("x", InputKind::kBatch, parse_type("bf16[\"batch/data=32 embed=64\"]"));
  std::vector<Tensor> weights;
  if (layers == Layers::kRepeated) {
    weights = {weight("up", "layers=6 " + up), weight("down", "layers=6 " + down)};
    x = repeat("layers", kLayers, {x}, {}, [&](Tensor, std::vector<Tensor> carries, auto) {
          const RematScope remat;
          return RepeatBody{{block(carries[0], loop_slice(weights[0]), loop_slice(weights[1]))},
                            {}};
        }).carries[0];
  } else {
    for (int64_t i = 0; i < kLayers; ++i) {
      const PathScope path("layers[" + std::to_string(i) + "]");
      const RematScope remat;
      weights.push_back(weight("up" + std::to_string(i), up));
      weights.push_back(weight("down" + std::to_string(i), down));
      x = block(x, weights[weights.size() - 2], weights.back());
    }
  }
  const Tensor loss = place(reduce_sum(square(cast(x, DType::kF32))));
  output("loss", loss);
  const std::vector<Tensor> slopes = gradients(loss, weights);
  const PhaseScope phase(Phase::kUpdate);
  for (size_t i = 0; i < weights.size(); ++i)
    graph.add_update(graph.value(weights[i].id()).name, (weights[i] - slopes[i] * 0.1).id());
  return graph;
}

Graph lowered(const Mesh& mesh, Layers layers, int64_t device) {
  const Graph traced = step(mesh, layers);
  return schedule(lower(rematerialize(traced, parse_remat_policy("save_nothing")), mesh, device));
}

FlatProgram overlapped(const Mesh& mesh, Layers layers, int64_t device = 0,
                       const LaunchSeconds& seconds = {}) {
  FlatProgram program = flatten(std::make_shared<const Graph>(lowered(mesh, layers, device)), {});
  overlap(program, seconds);
  return program;
}

const Node& node_of(const FlatLaunch& launch) { return launch.graph->node(launch.node); }

bool touches(const FlatProgram& program, FlatValue a, FlatValue b) {
  a = program.root(a);
  b = program.root(b);
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Inputs of a launch have been written and, if by a collective, waited for; a start may read
// results of earlier starts. Every start has one wait, and waits are in the order of their starts.
void check_legal(const FlatProgram& program) {
  std::vector<FlatValue> written, in_flight;
  std::vector<LaunchId> started, waited;
  const auto reads = [&](const std::vector<FlatValue>& values, FlatValue value) {
    return std::any_of(values.begin(), values.end(),
                       [&](FlatValue each) { return touches(program, each, value); });
  };
  for (const LaunchId i : program.launches.ids()) {
    const FlatLaunch& launch = program.launches[i];
    if (launch.kind == LaunchKind::kWait) {
      waited.push_back(launch.waits_for);
      const FlatLaunch& start = program.launches[launch.waits_for];
      REQUIRE((start.kind == LaunchKind::kStart && start.node == launch.node));
      for (const FlatValue& value : start.outputs) {
        std::erase_if(in_flight, [&](FlatValue each) {
          return each.buffer == value.buffer && each.offset == value.offset;
        });
        written.push_back(value);
      }
      continue;
    }
    REQUIRE(is_collective(node_of(launch)) == (launch.kind == LaunchKind::kStart));
    for (const FlatValue& value : launch.inputs) {
      INFO("launch " << i.value() << ", " << node_of(launch).op->name);
      const bool is_input = program.buffers[program.root(value).buffer].is_input;
      const bool may_chain = launch.kind == LaunchKind::kStart;
      REQUIRE((is_input || reads(written, value) || (may_chain && reads(in_flight, value))));
      if (!may_chain) REQUIRE(!reads(in_flight, value));
    }
    if (launch.kind == LaunchKind::kStart) started.push_back(i);
    for (const FlatValue& value : launch.outputs)
      (launch.kind == LaunchKind::kStart ? in_flight : written).push_back(value);
  }
  REQUIRE(started == waited);
}

std::vector<Mesh> meshes() {
  return {Mesh({{"data", 4}}), Mesh({{"replica", 2}, {"data", 4}}), Mesh({{"data", 2}, {"x", 2}})};
}

TEST_CASE("Starts and waits are legal, and every collective is split") {
  for (const Mesh& mesh : meshes())
    for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled})
      check_legal(overlapped(mesh, layers));
}

TEST_CASE("Starts and waits have the same order on every device") {
  const Mesh mesh({{"data", 4}});
  const auto order = [&](int64_t device) {
    std::vector<std::pair<NodeId, LaunchKind>> result;
    for (const FlatLaunch& launch : overlapped(mesh, Layers::kRepeated, device).launches)
      result.emplace_back(launch.node, launch.kind);
    return result;
  };
  REQUIRE(order(0) == order(3));
}

// For each collective of this op, the number of matrix products between its start and its wait.
std::vector<int64_t> products_beside(const FlatProgram& program, std::string_view op) {
  std::map<LaunchId, int64_t> since;
  std::vector<int64_t> result;
  int64_t products = 0;
  for (const LaunchId i : program.launches.ids()) {
    const FlatLaunch& launch = program.launches[i];
    products += node_of(launch).op->name == "einsum" ? 1 : 0;
    if (node_of(launch).op->name != op) continue;
    if (launch.kind == LaunchKind::kStart) since[i] = products;
    if (launch.kind == LaunchKind::kWait) result.push_back(products - since.at(launch.waits_for));
  }
  return result;
}

TEST_CASE("Weights of the next layer are gathered while a layer computes") {
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const std::vector<int64_t> beside =
        products_beside(overlapped(Mesh({{"data", 4}}), layers), "all_gather");
    // Each weight of each layer in both passes; nothing precedes the first layer.
    REQUIRE(beside.size() == 4 * kLayers);
    for (size_t i = 2; i < beside.size(); ++i) REQUIRE(beside[i] >= 1);
  }
}

TEST_CASE("Gradients are scattered while earlier layers compute") {
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const std::vector<int64_t> beside =
        products_beside(overlapped(Mesh({{"data", 4}}), layers), "reduce_scatter");
    REQUIRE(beside.size() == 2 * kLayers);
    for (size_t i = 0; i + 2 < beside.size(); ++i) REQUIRE(beside[i] >= 1);
  }
}

TEST_CASE(
    "Overlap needs at most one layer's gathered weights and two layers' gradients more memory") {
  const Mesh mesh({{"data", 4}});
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const int64_t plain = plan_memory(lowered(mesh, layers, 0), {}).arena_bytes;
    const int64_t overlapped_bytes =
        plan_memory(lowered(mesh, layers, 0), {}, {}, Communication::kOverlapped).arena_bytes;
    // Gradients are reduced in f32: twice a layer's gathered bytes, and the result is a quarter of
    // that.
    const int64_t gradients = 2 * kLayerBytes + kLayerBytes / 2;
    REQUIRE(overlapped_bytes > plain);
    REQUIRE(overlapped_bytes <= plain + kLayerBytes + 2 * gradients);
  }
}

// A product takes one second, an all-gather `seconds`, and other launches no time.
LaunchSeconds gathers_take(double seconds) {
  return [seconds](const Graph&, const Node& node) {
    if (node.op->name == "einsum") return 1.0;
    return node.op->name == "all_gather" ? seconds : 0.0;
  };
}

TEST_CASE("With times, a gather that takes long starts earlier, and one that does not, later") {
  const Mesh mesh({{"data", 4}});
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const auto beside = [&](const LaunchSeconds& seconds) {
      const FlatProgram program = overlapped(mesh, layers, 0, seconds);
      check_legal(program);
      return products_beside(program, "all_gather");
    };
    const std::vector<int64_t> by_bytes = beside({});
    const std::vector<int64_t> quick = beside(gathers_take(0.1)),
                               slow = beside(gathers_take(100.0));
    REQUIRE(quick.size() == by_bytes.size());
    REQUIRE(slow.size() == by_bytes.size());
    // The first layer has nothing before it.
    for (size_t i = 4; i < by_bytes.size(); ++i) {
      // A gather of a tenth of a second runs during the product before it.
      REQUIRE(quick[i] >= 1);
      REQUIRE(quick[i] <= by_bytes[i]);
      REQUIRE(slow[i] >= by_bytes[i]);
    }
    REQUIRE(std::accumulate(quick.begin(), quick.end(), 0) <
            std::accumulate(by_bytes.begin(), by_bytes.end(), 0));
    REQUIRE(std::accumulate(slow.begin(), slow.end(), 0) >
            std::accumulate(by_bytes.begin(), by_bytes.end(), 0));
  }
}

TEST_CASE("With times, gathers need the memory of one layer more at most, and less if quick") {
  const Mesh mesh({{"data", 4}});
  for (const Layers layers : {Layers::kRepeated, Layers::kUnrolled}) {
    const auto bytes = [&](const LaunchSeconds& seconds) {
      return plan_memory(lowered(mesh, layers, 0), {}, {}, Communication::kOverlapped, seconds)
          .arena_bytes;
    };
    // One layer more, and the shards that two layers are gathered from.
    REQUIRE(bytes(gathers_take(100.0)) <= bytes({}) + kLayerBytes + 2 * kLayerBytes / 4);
    REQUIRE(bytes(gathers_take(0.1)) <= bytes({}));
  }
}

TEST_CASE("A program without collectives is not changed") {
  const Mesh mesh({{"data", 1}});
  FlatProgram program =
      flatten(std::make_shared<const Graph>(lowered(mesh, Layers::kRepeated, 0)), {});
  const size_t before = program.launches.size();
  overlap(program);
  REQUIRE(program.launches.size() == before);
  for (const FlatLaunch& launch : program.launches) REQUIRE(launch.kind == LaunchKind::kRun);
}

}  // namespace
}  // namespace tessera
