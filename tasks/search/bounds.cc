// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/bounds.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/graph/type.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/passes/memory/step_plan.h"
#include "core/runtime/executor/compile.h"
#include "inputs/checked_input.h"
#include "tasks/plan/roofline.h"
#include "tasks/search/layer_stream.h"
#include "tasks/search/live_bytes.h"
#include "tasks/search/value_origins.h"
#include "tasks/session/check_rules.h"
#include "tasks/session/model_session.h"

namespace tessera {
namespace {

// Adds the prices of a graph of one device, of which each node runs `times` times.
class ProgramSum {
 public:
  ProgramSum(const Graph& graph, const Mesh& mesh, const Hardware& hardware)
      : mesh_(mesh), hardware_(hardware), origins_(graph, mesh), stream_(origins_, mesh, hardware) {
    add(graph, 1.0, false);
    sum_.is_pipeline = mesh.stages() > 1;
    sum_.launches *= mesh.stages();
    for (const GraphInput& each : graph.inputs()) sum_.bytes += graph.type(each.value).bytes();
    sum_.bytes += live_bytes(graph);
    sum_.common_bytes = live_bytes(graph, [this](const Graph& inside, const Node& node) {
      return origins_.is_common(inside, node);
    });
  }
  const ProgramBounds& sum() const { return sum_; }

 private:
  void add(const Graph& graph, double times, bool in_layers) {
    for (const Node& node : graph.nodes()) {
      const bool is_stack = !in_layers && is_repeat(node) && Loop(node).axis() == kLayersAxis;
      if (is_stack) {
        sum_.layers += times * stream_.seconds(node, Counted::kAll);
        sum_.common_layers += times * stream_.seconds(node, Counted::kCommon);
      }
      for (const auto& [body, runs] : run_bodies(node))
        add(*body, times * static_cast<double>(runs), in_layers || is_stack);
      if (!runs_bodies(node) && !view_offset(graph, node))
        add_launch(graph, node, times, in_layers);
    }
  }

  void add_launch(const Graph& graph, const Node& node, double times, bool in_layers) {
    sum_.launches += static_cast<int64_t>(times);
    const double seconds = launch_cost(graph, node, mesh_, hardware_).seconds;
    if (is_collective(node)) {
      add_collective(node, seconds, times);
      return;
    }
    sum_.compute += times * seconds;
    if (node.op->op_class != OpClass::kContraction) return;
    (in_layers ? sum_.layer_products : sum_.other_products) += times * seconds;
    if (!in_layers && origins_.is_common(graph, node)) sum_.common_products += times * seconds;
  }

  // Collectives on one kind of link share its bandwidth, but may hide each other's latencies.
  void add_collective(const Node& node, double seconds, double times) {
    bool crosses = false;
    for (const auto& name : node.attributes.get<std::vector<std::string>>("mesh_axes"))
      crosses = crosses || mesh_.axes()[static_cast<size_t>(mesh_.position(name))].dcn > 1;
    const double latency = crosses ? std::max(hardware_.network.latency, hardware_.link.latency)
                                   : hardware_.link.latency;
    (crosses ? sum_.network : sum_.links) += times * std::max(0.0, seconds - latency);
  }

  const Mesh& mesh_;
  const Hardware& hardware_;
  ValueOrigins origins_;
  LayerStream stream_;
  ProgramBounds sum_;
};

// The axes that do not share the batch, with their sizes, and everything that decides how often
// what is computed.
std::string shape_key(const Candidate& candidate, bool with_slices) {
  const Layout& layout = candidate.layout;
  std::string key = layout.rules.activations;
  int64_t groups = 1;
  const Mesh mesh = layout.mesh();
  const std::vector<AxisRule> rules = parse_rules(layout.rules.activations);
  // Whether it divides nothing else, such as experts.
  const auto divides_only_batch = [&](const std::string& axis) {
    return divides_batch(axis) && std::ranges::none_of(rules, [&](const AxisRule& rule) {
             return rule.axis != "batch" && std::ranges::find(rule.mesh, axis) != rule.mesh.end();
           });
  };
  for (const MeshAxis& axis : mesh.axes()) {
    if (divides_only_batch(axis.name)) {
      groups *= axis.size();
    } else {
      key += fmt::format(" {}={}", axis.name, axis.size());
      if (with_slices) key += fmt::format("x{}", axis.dcn);
    }
  }
  return fmt::format("{} {} {} {} {} {}", key, groups, candidate.microbatches,
                     candidate.schedule.name, candidate.schedule.chunks, candidate.remat_policy);
}

}  // namespace

int64_t stored_bytes(const Recipe& recipe, const Candidate& candidate) {
  const Layout& layout = candidate.layout;
  const Mesh mesh = layout.mesh();
  const AxisRules rules = make_rules(layout.rules);
  int64_t bytes = 0;
  for (const Parameter& like : recipe.stored_with(candidate.state)) {
    if (!like.layout.empty()) continue;  // Its own layout; rare, so it is not counted.
    const Type type = stored_type(like, rules, mesh);
    if (const auto problem = type_problem(type, mesh)) fail("{}: {}", like.path, *problem);
    if (mesh.stages() > 1 && like.stack == 0) continue;  // Not on each stage.
    bytes += local_type(type, mesh).bytes();
  }
  return bytes;
}

double ProgramBounds::seconds(double beside_layers) const {
  return std::max(
      {compute, links, network, layers + (is_pipeline ? beside_layers : other_products)});
}

ProgramBounds program_bounds(const ExperimentConfig& config, Device& device,
                             const Hardware& hardware) {
  ProcessGroup alone;
  const ModelSession session(config, ModelSession::Purpose::kPlanning, {&device}, 1, alone);
  const std::unique_ptr<BaseInput> input = make_input(config.input);
  const Type batch =
      apply_rules(session.rules().activations, session.mesh(),
                  make_type(DType::kI32, {{"batch", input->global_batch_size(), {}}}));
  if (const auto problem = type_problem(batch, session.mesh()))
    fail("global_batch_size: {}", *problem);
  const Graph traced =
      session.task().train_graph({session.mesh(), session.rules(), global_specification(*input)});
  check_rules(session.rules(), traced);
  CompileOptions options{.mesh = session.mesh(),
                         .remat = parse_remat_policy(session.train().remat_policy)};
  if (const auto& pipeline = session.pipeline()) options.pipeline = table_for(*pipeline, traced);
  std::vector<SavedValue> saved;
  const Graph shared = compile_shared(traced, options, saved);
  const Graph graph = compile_for_device(shared, options, 0, Stages::kSilent, device).graph;
  return ProgramSum(graph, session.mesh(), hardware).sum();
}

void SharedBounds::add(const Candidate& candidate, const ProgramBounds& bounds,
                       double beside_layers) {
  const auto with_rest = [&](double layers, double other_products) {
    return layers + (bounds.is_pipeline ? beside_layers : other_products);
  };
  double& products = products_[products_key(candidate)];
  products = std::max(products, with_rest(bounds.layer_products, bounds.other_products));
  Common& common = common_[common_key(candidate)];
  common.seconds =
      std::max(common.seconds, with_rest(bounds.common_layers, bounds.common_products));
  common.bytes = std::max(common.bytes, bounds.common_bytes);
}

double SharedBounds::seconds(const Candidate& candidate) const {
  const auto products = products_.find(products_key(candidate));
  const auto common = common_.find(common_key(candidate));
  return std::max(products == products_.end() ? 0.0 : products->second,
                  common == common_.end() ? 0.0 : common->second.seconds);
}

int64_t SharedBounds::activation_bytes(const Candidate& candidate) const {
  const auto common = common_.find(common_key(candidate));
  return common == common_.end() ? 0 : common->second.bytes;
}

std::string products_key(const Candidate& candidate) { return shape_key(candidate, false); }

std::string common_key(const Candidate& candidate) {
  std::string key = shape_key(candidate, true) + " " + candidate.layout.rules.weights;
  const Mesh mesh = candidate.layout.mesh();
  for (const MeshAxis& axis : mesh.axes())
    if (divides_batch(axis.name) && axis.size() > 1) key += " " + axis.name;
  return key;
}

}  // namespace tessera
