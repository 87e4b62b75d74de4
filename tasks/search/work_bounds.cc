// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/work_bounds.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/passes/dependence.h"
#include "core/passes/remat/remat.h"
#include "inputs/checked_input.h"
#include "tasks/base_task.h"
#include "tasks/plan/roofline.h"

namespace tessera {
namespace {

bool is_layer_loop(const Node& node) { return is_repeat(node) && Loop(node).axis() == kLayersAxis; }

// Adds the products of a graph that is traced on one device.
class WorkSum {
 public:
  explicit WorkSum(const Hardware& hardware) : hardware_(hardware), share_(best_share(hardware)) {}

  ModelWork of(const Graph& graph) {
    add(graph, 1.0);
    work_.all += work_.layers;
    return work_;
  }

 private:
  // Of one execution, with all bodies.
  double seconds_of(const Graph& graph, const Node& node) const {
    double seconds = 0.0;
    for (const auto& [body, runs] : run_bodies(node))
      seconds += static_cast<double>(runs) * seconds_of(*body);
    if (node.op->op_class == OpClass::kContraction && node.op->flops != nullptr)
      seconds += node.op->flops(graph, node) / (share_ * product_peak(graph, node, hardware_));
    return seconds;
  }
  double seconds_of(const Graph& graph) const {
    double seconds = 0.0;
    for (const Node& node : graph.nodes()) seconds += seconds_of(graph, node);
    return seconds;
  }

  // Of one layer: what depends on a value that the layer before hands on, and that the same value
  // of the next layer depends on.
  double chain_seconds(const Loop& loop) const {
    const Graph& body = loop.body();
    double longest = 0.0;
    for (size_t carry = 0; carry < loop.carries(); ++carry) {
      Dependence after(body);
      after.add_source(loop.carry_in(carry));
      after.propagate();
      const NodeFlags before = ancestors(body, {loop.carry_out(carry)});
      double seconds = 0.0;
      for (const NodeId id : body.nodes().ids())
        if (before[id] && after.of(body.node(id))) seconds += seconds_of(body, body.node(id));
      longest = std::max(longest, seconds);
    }
    return longest;
  }

  void add_layers(const Node& node, double times) {
    const Loop loop(node);
    const double runs = times * static_cast<double>(loop.count());
    ModelWork::Pass& pass = node.phase == Phase::kForward ? work_.forward : work_.backward;
    const double seconds = runs * seconds_of(loop.body());
    pass.all += seconds;
    pass.chain += runs * chain_seconds(loop);
    work_.layers += seconds;
  }

  void add(const Graph& graph, double times) {
    Dependence forward(graph), backward(graph);
    for (const Node& node : graph.nodes()) {
      if (!is_layer_loop(node)) continue;
      for (const ValueId value : node.outputs)
        (node.phase == Phase::kForward ? forward : backward).add_source(value);
    }
    forward.propagate();
    backward.propagate();
    for (const Node& node : graph.nodes()) {
      if (is_layer_loop(node)) {
        add_layers(node, times);
        continue;
      }
      if (contains_layers(node)) {
        for (const auto& [body, runs] : run_bodies(node))
          add(*body, times * static_cast<double>(runs));
        continue;
      }
      const double seconds = times * seconds_of(graph, node);
      work_.all += seconds;
      if (forward.of(node) && !backward.of(node)) work_.after_layers += seconds;
    }
  }

  bool contains_layers(const Node& node) const {
    for (const auto& [body, runs] : run_bodies(node))
      for (const Node& inner : body->nodes())
        if (is_layer_loop(inner) || contains_layers(inner)) return true;
    return false;
  }

  const Hardware& hardware_;
  double share_;
  ModelWork work_;
};

// What a policy saves: with equal texts, equal programs.
std::string saved_text(const std::vector<SavedValue>& saved) {
  std::string text;
  for (const SavedValue& value : saved)
    text += fmt::format("{} {} {}\n", value.name, value.path, value.type.text_sized());
  return text;
}

Graph trace_on_one_device(const ExperimentConfig& config) {
  std::vector<MeshAxis> axes;
  for (const std::string& name : config.mesh.axis_names) axes.push_back({name, 1, 1});
  const std::unique_ptr<BaseInput> input = make_input(config.input);
  return config.task.instantiate()->train_graph(
      {Mesh(std::move(axes)), make_rules(config.rules), global_specification(*input)});
}

// Between the moment when a piece of `layers` layers has what it receives, and the moment when it
// may hand on: what the first and the last layer compute in between, and all that the layers
// between these compute. `layer` is one layer and one microbatch.
double piece_seconds(const ModelWork::Pass& layer, int64_t layers) {
  if (layers < 2) return layer.chain;
  return 2.0 * layer.chain + static_cast<double>(layers - 2) * layer.all;
}

}  // namespace

const WorkBounds::OfPolicy& WorkBounds::of(int64_t microbatches, const std::string& policy) {
  const auto key = std::pair(microbatches, policy);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  auto traced = traced_.find(microbatches);
  if (traced == traced_.end()) {
    const ExperimentConfig config =
        configure_({fmt::format("task.train.num_microbatches={}", microbatches)});
    traced = traced_.emplace(microbatches, trace_on_one_device(config)).first;
  }
  std::vector<SavedValue> saved;
  const Graph graph = rematerialize(traced->second, parse_remat_policy(policy), &saved);
  OfPolicy result{WorkSum(hardware_).of(graph), policy};
  const auto [first, added] =
      first_with_.try_emplace(std::pair(microbatches, saved_text(saved)), policy);
  if (!added) result.same_as = first->second;
  return known_.emplace(key, std::move(result)).first->second;
}

double WorkBounds::seconds(const Candidate& candidate) {
  const ModelWork& work = of(candidate.microbatches, candidate.remat_policy).work;
  const Mesh mesh = candidate.layout.mesh();
  const auto devices = static_cast<double>(mesh.num_devices());
  if (mesh.stages() == 1) return work.all / devices;
  return work.layers / devices + seconds_beside_layers(candidate);
}

double WorkBounds::seconds_beside_layers(const Candidate& candidate) {
  const Mesh mesh = candidate.layout.mesh();
  const int64_t stages = mesh.stages();
  if (stages == 1 || recipe_.has_own_pieces) return 0.0;
  const ModelWork& work = of(candidate.microbatches, candidate.remat_policy).work;
  const double devices = static_cast<double>(mesh.num_devices()) / static_cast<double>(stages);
  const double after = work.after_layers / devices;
  // The recipe's own schedule may have any number of chunks.
  if (candidate.schedule.name.empty()) return after;
  const double share =
      1.0 / (devices * static_cast<double>(recipe_.layers * candidate.microbatches));
  const auto piece = [&](const ModelWork::Pass& pass) {
    return piece_seconds({share * pass.all, share * pass.chain},
                         recipe_.layers / (stages * candidate.schedule.chunks));
  };
  // What the last stage may compute of one layer while it waits for the first microbatch, or after
  // it has handed on the last gradient, is not idle time.
  const auto idle = [&](const ModelWork::Pass& pass) {
    return std::max(
        0.0, static_cast<double>(stages - 1) * piece(pass) - share * (pass.all - pass.chain));
  };
  // With the backward pass in two tasks, those of weights may fill the time after the last one of
  // inputs.
  return after + idle(work.forward) +
         (candidate.schedule.splits_backward() ? 0.0 : idle(work.backward));
}

const std::string& WorkBounds::policy_class(int64_t microbatches, const std::string& policy) {
  return of(microbatches, policy).same_as;
}

}  // namespace tessera
