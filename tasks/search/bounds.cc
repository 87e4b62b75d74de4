// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/bounds.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/type.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/passes/memory/step_plan.h"
#include "core/runtime/executor/compile.h"
#include "inputs/base_input.h"
#include "tasks/plan/roofline.h"
#include "tasks/session/check_rules.h"
#include "tasks/session/model_session.h"

namespace tessera {
namespace {

struct Flops {
  std::map<DType, double> all, layers;
};

enum class Place { kOutside, kLayers };

void add_flops(const Graph& graph, double times, Place place, Flops& flops) {
  for (const Node& node : graph.nodes()) {
    const bool is_stack = is_repeat(node) && Loop(node).axis() == kLayersAxis;
    for (const auto& [body, runs] : run_bodies(node))
      add_flops(*body, times * static_cast<double>(runs), is_stack ? Place::kLayers : place, flops);
    if (node.op->op_class != OpClass::kContraction || node.op->flops == nullptr) continue;
    const double count = times * node.op->flops(graph, node);
    const DType dtype = graph.type(node.inputs[0]).dtype;
    flops.all[dtype] += count;
    if (place == Place::kLayers) flops.layers[dtype] += count;
  }
}

double seconds_of(const std::map<DType, double>& flops, const Hardware& hardware) {
  const double share = best_share(hardware);
  double seconds = 0.0;
  for (const auto& [dtype, count] : flops) seconds += count / (share * hardware.peak_flops(dtype));
  return seconds;
}

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
  const std::unique_ptr<BaseInput> input = config.input.instantiate();
  return config.task.instantiate()->train_graph(
      {Mesh(std::move(axes)), make_rules(config.rules), global_specification(*input)});
}

// The value that a view shows.
ValueId viewed(const Graph& graph, ValueId value) {
  for (NodeId producer = graph.value(value).producer; producer != kNone;
       producer = graph.value(value).producer) {
    const Node& node = graph.node(producer);
    if (runs_bodies(node) || !view_offset(graph, node)) break;
    value = node.inputs[0];
  }
  return value;
}

// Adds the prices of a graph of one device, of which each node runs `times` times.
class ProgramSum {
 public:
  ProgramSum(const Mesh& mesh, const Hardware& hardware) : mesh_(mesh), hardware_(hardware) {}

  void add(const Graph& graph, double times) {
    for (const Node& node : graph.nodes()) {
      for (const auto& [body, runs] : run_bodies(node))
        add(*body, times * static_cast<double>(runs));
      if (runs_bodies(node) || view_offset(graph, node)) continue;
      sum_.launches += static_cast<int64_t>(times);
      const double seconds = launch_cost(graph, node, mesh_, hardware_).seconds;
      if (is_collective(node)) {
        add_collective(node, seconds, times);
        continue;
      }
      sum_.compute += times * seconds;
      if (node.op->op_class == OpClass::kContraction) sum_.products += times * seconds;
    }
  }
  const ProgramBounds& sum() const { return sum_; }

 private:
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
  ProgramBounds sum_;
};

// The bytes of a loop's stacked results that no other value shares.
int64_t own_bytes_of_result(const Loop& loop, size_t k, std::set<ValueId>& counted) {
  const Graph& body = loop.body();
  const ValueId slice = viewed(body, loop.slice_out(k));
  if (!counted.insert(slice).second) return 0;
  const int64_t bytes = body.type(slice).bytes();
  if (body.value(slice).producer != kNone) return loop.count() * bytes;
  for (size_t i = 0; i < loop.carries(); ++i)  // The first one may be a value outside.
    if (loop.carry_in(i) == slice) return (loop.count() - 1) * bytes;
  return 0;
}

// For each output of a node the bytes that it adds to the memory in use.
std::vector<int64_t> own_bytes(const Graph& graph, const Node& node) {
  std::vector<int64_t> bytes(node.outputs.size(), 0);
  if (is_repeat(node)) {
    const Loop loop(node);
    std::set<ValueId> counted;
    for (size_t k = 0; k < loop.results(); ++k)
      bytes[loop.carries() + k] = own_bytes_of_result(loop, k, counted);
    return bytes;
  }
  if (runs_bodies(node) || view_offset(graph, node)) return bytes;
  for (size_t i = 0; i < node.outputs.size(); ++i) bytes[i] = graph.type(node.outputs[i]).bytes();
  return bytes;
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
  Flops flops;
  add_flops(graph, 1.0, Place::kOutside, flops);
  OfPolicy result{{seconds_of(flops.all, hardware_), seconds_of(flops.layers, hardware_)}, policy};
  const auto [first, added] =
      first_with_.try_emplace(std::pair(microbatches, saved_text(saved)), policy);
  if (!added) result.same_as = first->second;
  return known_.emplace(key, std::move(result)).first->second;
}

double WorkBounds::seconds(const Candidate& candidate) {
  const Work& work = of(candidate.microbatches, candidate.remat_policy).work;
  const Mesh mesh = candidate.layout.mesh();
  return (mesh.stages() > 1 ? work.layers : work.all) / static_cast<double>(mesh.num_devices());
}

const std::string& WorkBounds::policy_class(int64_t microbatches, const std::string& policy) {
  return of(microbatches, policy).same_as;
}

int64_t stored_bytes(const Recipe& recipe, const Layout& layout) {
  const Mesh mesh = layout.mesh();
  const AxisRules rules = make_rules(layout.rules);
  int64_t bytes = 0;
  for (const Parameter& like : recipe.stored) {
    if (!like.layout.empty()) continue;  // Its own layout; rare, so it is not counted.
    if (mesh.stages() > 1 && like.stack == 0) continue;
    const Type type = stored_type(like, rules, mesh);
    if (const auto problem = type_problem(type, mesh)) fail("{}: {}", like.path, *problem);
    bytes += local_type(type, mesh).bytes();
  }
  return bytes;
}

double ProgramBounds::seconds() const { return std::max({compute, links, network}); }

ProgramBounds program_bounds(const ExperimentConfig& config, Device& device,
                             const Hardware& hardware) {
  ProcessGroup alone;
  const ModelSession session(config, ModelSession::Purpose::kPlanning, {&device}, 1, alone);
  const std::unique_ptr<BaseInput> input = config.input.instantiate();
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
  if (session.pipeline()) options.pipeline = table_for(*session.pipeline(), traced);
  std::vector<SavedValue> saved;
  const Graph shared = compile_shared(traced, options, saved);
  const Graph graph = compile_for_device(shared, options, 0, Stages::kSilent, device).graph;
  ProgramSum sum(session.mesh(), hardware);
  sum.add(graph, 1.0);
  ProgramBounds bounds = sum.sum();
  bounds.launches *= session.mesh().stages();
  for (const GraphInput& each : graph.inputs()) bounds.bytes += graph.type(each.value).bytes();
  bounds.bytes += live_bytes(graph);
  return bounds;
}

int64_t live_bytes(const Graph& graph) {
  constexpr int64_t kNever = -1;
  IndexedVector<ValueId, int64_t> last_read(graph.values().size());
  for (int64_t& last : last_read) last = kNever;
  int64_t place = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId value : node.inputs) last_read[value] = place;
    ++place;
  }
  // A new value of a parameter or of state may be in the place of the old one.
  for (const GraphOutput& output : graph.outputs())
    if (output.is_update) last_read[viewed(graph, output.value)] = kNever;
  const auto places = static_cast<size_t>(place);
  std::vector<int64_t> made(places, 0), ended(places, 0), inside(places, 0);
  place = 0;
  for (const Node& node : graph.nodes()) {
    const std::vector<int64_t> bytes = own_bytes(graph, node);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int64_t end = last_read[node.outputs[i]];
      if (end <= place) continue;
      made[static_cast<size_t>(place)] += bytes[i];  // From the gap after this node,
      ended[static_cast<size_t>(end)] += bytes[i];   // to the gap before its last reader.
    }
    if (is_repeat(node)) inside[static_cast<size_t>(place)] = live_bytes(Loop(node).body());
    ++place;
  }
  int64_t live = 0, most = 0;
  for (size_t i = 0; i < places; ++i) {
    // While node i runs: values that were made before and are read after it.
    live -= ended[i];
    most = std::max(most, live + inside[i]);
    live += made[i];
    most = std::max(most, live);
  }
  return most;
}

std::string products_key(const Candidate& candidate) {
  const Layout& layout = candidate.layout;
  std::string key = layout.rules.activations;
  int64_t groups = 1;
  const Mesh mesh = layout.mesh();
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.name == "replica" || axis.name == "data") {
      groups *= axis.size();
    } else {
      key += fmt::format(" {}={}", axis.name, axis.size());
    }
  }
  return fmt::format("{} {} {} {} {} {}", key, groups, candidate.microbatches,
                     candidate.schedule.name, candidate.schedule.chunks, candidate.remat_policy);
}

}  // namespace tessera
