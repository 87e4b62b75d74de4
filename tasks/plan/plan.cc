// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/passes/cost.h"
#include "tasks/logging/throughput.h"

namespace tessera {
namespace {

// "x_layers[3].ffn" -> "x_layers[].ffn".
std::string without_indices(std::string_view path) {
  std::string result;
  for (size_t i = 0; i < path.size(); ++i) {
    result += path[i];
    if (path[i] != '[') continue;
    size_t end = i + 1;
    while (end < path.size() && path[end] >= '0' && path[end] <= '9') ++end;
    if (end < path.size() && path[end] == ']') i = end - 1;
  }
  return result;
}

// kDcn if one of the mesh axes spans slices.
Link link_of(const Mesh& mesh, const std::vector<std::string>& mesh_axes) {
  const bool slow = std::any_of(mesh_axes.begin(), mesh_axes.end(), [&](const std::string& axis) {
    return mesh.axes()[static_cast<size_t>(mesh.position(axis))].dcn > 1;
  });
  return slow ? Link::kDcn : Link::kIci;
}

std::vector<PlannedCollective> planned(const std::vector<CollectiveUse>& uses, const Mesh& mesh) {
  std::vector<PlannedCollective> result;
  using Key = std::tuple<std::string, std::string, std::vector<std::string>, DType, int64_t,
                         std::string, std::string, Phase>;
  std::map<Key, size_t> known;
  for (const CollectiveUse& use : uses) {
    PlannedCollective one{.op = use.op,
                          .value = without_indices(use.value),
                          .mesh_axes = use.mesh_axes,
                          .link = link_of(mesh, use.mesh_axes),
                          .dtype = use.dtype,
                          .bytes = use.bytes,
                          .count = use.count,
                          .source = use.site.text(),
                          .path = without_indices(use.path),
                          .phase = use.phase};
    const auto [place, fresh] = known.try_emplace(Key{one.op, one.value, one.mesh_axes, one.dtype,
                                                      one.bytes, one.source, one.path, one.phase},
                                                  result.size());
    if (fresh) {
      result.push_back(std::move(one));
    } else {
      result[place->second].count += use.count;
    }
  }
  return result;
}

std::vector<AxisTotal> totals_of(const std::vector<PlannedCollective>& collectives) {
  std::vector<AxisTotal> totals;
  for (const PlannedCollective& one : collectives) {
    auto total = std::find_if(totals.begin(), totals.end(), [&](const AxisTotal& known) {
      return known.mesh_axes == one.mesh_axes;
    });
    if (total == totals.end()) total = totals.insert(total, {one.mesh_axes, one.link, 0, 0});
    total->count += one.count;
    total->bytes += one.bytes_per_step();
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const AxisTotal& a, const AxisTotal& b) { return a.bytes > b.bytes; });
  return totals;
}

// Bytes that a device saves for the backward pass, summed by name.
std::vector<NamedBytes> saved_by_name(const std::vector<SavedValue>& values, const Mesh& mesh) {
  std::map<std::string, int64_t> bytes;
  for (const SavedValue& value : values)
    bytes[without_indices(value.name)] += local_type(value.type, mesh).bytes();
  std::vector<NamedBytes> result;
  for (const auto& [name, size] : bytes) result.push_back({name, size});
  std::stable_sort(result.begin(), result.end(),
                   [](const NamedBytes& a, const NamedBytes& b) { return a.bytes > b.bytes; });
  return result;
}

}  // namespace

std::string_view link_name(Link link) { return link == Link::kDcn ? "dcn" : "ici"; }

Plan make_plan(ModelSession& session, const Graph& traced, int program, int64_t tokens_per_step) {
  const StepPlan& step = session.executor().plan(program);
  Plan plan{.parameters = session.task().model().parameters().elements(),
            .devices = session.mesh().num_devices(),
            .mesh = session.mesh().axes(),
            .tokens_per_step = tokens_per_step,
            .flops_per_device = graph_flops(*step.graph),
            .launches = static_cast<int64_t>(step.launches.size()),
            .memory = {{"parameters", step.use.parameters},
                       {"optimizer_state", step.use.state},
                       {"batch", step.use.batch},
                       {"gradients", step.use.gradients},
                       {"activations", step.use.activations},
                       {"temporaries", step.use.temporaries}},
            .peak = step.use.peak,
            .arena = session.executor().arena_bytes(),
            .saved = saved_by_name(session.executor().saved_values(program), session.mesh()),
            .collectives = planned(collectives(*step.graph), session.mesh())};
  for (const auto& [dtype, count] : model_flops(traced)) plan.flops_per_step += count;
  plan.totals = totals_of(plan.collectives);
  return plan;
}

}  // namespace tessera
