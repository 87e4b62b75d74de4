// SPDX-License-Identifier: Apache-2.0
#include "core/compile/cost.h"

#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/graph/op.h"
#include "core/ops/pipeline.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

bool same_but_count(const CollectiveUse& a, const CollectiveUse& b) {
  const auto key = [](const CollectiveUse& use) {
    return std::tie(use.op, use.value, use.mesh_axes, use.dtype, use.bytes, use.path, use.phase,
                    use.site.line);
  };
  return key(a) == key(b) && std::string_view(a.site.file) == b.site.file;
}

CollectiveUse use_of(const Graph& graph, const Node& node, int64_t count) {
  const Type& type = graph.type(node.inputs[0]);
  return {.op = std::string(node.op->name),
          .value = graph.describe(node.op == &kSendOp ? node.inputs[0] : node.outputs[0]),
          .mesh_axes = node.attributes.get(key::kMeshAxes),
          .dtype = type.dtype,
          .bytes = sent_bytes(graph, node),
          .count = count,
          .site = node.site,
          .path = node.path,
          .phase = node.phase};
}

class Collector {
 public:
  void add_graph(const Graph& graph, int64_t count) {
    for (const Node& node : graph.nodes()) {
      for (const auto& [body, times] : run_bodies(node)) add_graph(*body, count * times);
      if (is_collective(node) && node.op != &kReceiveOp) add(use_of(graph, node, count));
    }
  }
  std::vector<CollectiveUse> uses() && { return std::move(uses_); }

 private:
  void add(CollectiveUse use) {
    std::vector<size_t>& alike = by_path_[use.path];
    for (const size_t i : alike) {
      if (!same_but_count(uses_[i], use)) continue;
      uses_[i].count += use.count;
      return;
    }
    alike.push_back(uses_.size());
    uses_.push_back(std::move(use));
  }

  std::vector<CollectiveUse> uses_;
  std::unordered_map<std::string, std::vector<size_t>> by_path_;
};

// Loop bodies count once per iteration.
void add_model_flops(const Graph& graph, double times, std::map<DType, double>* flops) {
  for (const Node& node : graph.nodes()) {
    if (!node.bodies.empty()) {
      const double count = static_cast<double>(node.attributes.get_or(key::kCount, 1));
      for (const auto& body : node.bodies) add_model_flops(*body, times * count, flops);
    } else if (is_model_product(node) && node.op->flops != nullptr) {
      (*flops)[graph.type(node.inputs[0]).dtype] += times * node.op->flops(graph, node);
    }
  }
}

}  // namespace

double node_flops(const Graph& graph, const Node& node) {
  if (runs_bodies(node)) {
    double total = 0;
    for (const auto& [body, times] : run_bodies(node))
      total += static_cast<double>(times) * graph_flops(*body);
    return total;
  }
  if (!node.bodies.empty()) return graph_flops(*node.bodies[0]);
  if (node.op->flops != nullptr) return node.op->flops(graph, node);
  double elements = 0;
  for (const ValueId value : node.outputs)
    elements += static_cast<double>(graph.type(value).elements());
  return elements;
}

double graph_flops(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes()) total += node_flops(graph, node);
  return total;
}

double node_bytes(const Graph& graph, const Node& node) {
  if (node.op->bytes != nullptr) return node.op->bytes(graph, node);
  double bytes = 0;
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const ValueId value : *values) bytes += static_cast<double>(graph.type(value).bytes());
  return bytes;
}

int64_t sent_bytes(const Graph& graph, const Node& node) {
  return node.op == &kPermuteOp ? graph.type(node.inputs[0]).bytes()
                                : collective_bytes(graph, node);
}

std::vector<CollectiveUse> collectives(const Graph& lowered) {
  Collector collector;
  collector.add_graph(lowered, 1);
  return std::move(collector).uses();
}

int64_t bytes_per_step(const std::vector<CollectiveUse>& uses) {
  int64_t total = 0;
  for (const CollectiveUse& use : uses) total += use.bytes_per_step();
  return total;
}

bool is_model_product(const Node& node) {
  return node.op->op_class == OpClass::kContraction && !node.remat_clone &&
         node.phase != Phase::kUpdate;
}

std::map<DType, double> model_flops(const Graph& traced) {
  std::map<DType, double> flops;
  add_model_flops(traced, 1.0, &flops);
  return flops;
}

}  // namespace tessera
