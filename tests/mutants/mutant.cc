// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/mutant.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/ops/pipeline.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/mutants/changes.h"

namespace tessera {
namespace {

using NodePath = std::vector<size_t>;
using Visit =
    std::function<void(const Graph& graph, const Consumers& readers, const NodePath& path)>;

// Calls visit for each node, also for those of bodies.
void for_each_node(const Graph& graph, NodePath& path, const Visit& visit) {
  const Consumers readers(graph);
  for (const NodeId id : graph.nodes().ids()) {
    path.push_back(id.index());
    visit(graph, readers, path);
    const Node& node = graph.node(id);
    for (size_t body = 0; runs_bodies(node) && body < node.bodies.size(); ++body) {
      path.push_back(body);
      for_each_node(*node.bodies[body], path, visit);
      path.pop_back();
    }
    path.pop_back();
  }
}

NodeId node_id(const NodePath& path) { return NodeId(path.back()); }

// The programs of the stages have a collective over `stage` in common.
bool is_common(const Node& node) {
  if (!is_collective(node) || is_transfer(node)) return false;
  const std::vector<std::string>& mesh_axes = node.attributes.get(key::kMeshAxes);
  return std::ranges::find(mesh_axes, kStageAxis) != mesh_axes.end();
}

std::string common_key(const Node& node) {
  return fmt::format("{} {} {}", node.op->name, fmt::join(node.attributes.get(key::kMeshAxes), ","),
                     fmt::join(node.attributes.get_or(key::kStages, {}), ","));
}

const Node& node_at(const Graph& graph, std::span<const size_t> path) {
  const Node& node = graph.node(NodeId(path[0]));
  return path.size() == 1 ? node : node_at(*node.bodies[path[1]], path.subspan(2));
}

// The common collectives like `node`, in the order in which each stage runs them.
std::vector<NodePath> common_like(const Graph& graph, const Node& node) {
  std::vector<NodePath> found;
  NodePath path;
  for_each_node(graph, path, [&](const Graph& at, const Consumers&, const NodePath& here) {
    const Node& each = at.node(node_id(here));
    if (is_common(each) && common_key(each) == common_key(node)) found.push_back(here);
  });
  return found;
}

// The path of the changed node in the program of a device; nullopt: it has none.
std::optional<NodePath> path_on(const LoweredStep& step, const Mutant& mutant, int64_t device) {
  const int64_t stage = step.stage_of(device);
  if (stage == mutant.stage) return mutant.path;
  int64_t like = 0;
  while (step.stage_of(like) != mutant.stage) ++like;
  const Graph& graph = step.graphs[static_cast<size_t>(like)].graph;
  const Node& node = node_at(graph, mutant.path);
  if (!is_common(node)) return std::nullopt;
  const std::vector<NodePath> here = common_like(graph, node);
  const auto number = std::ranges::find(here, mutant.path) - here.begin();
  const std::vector<NodePath> there =
      common_like(step.graphs[static_cast<size_t>(device)].graph, node);
  if (number >= std::ssize(there)) return std::nullopt;
  return there[static_cast<size_t>(number)];
}

Graph mutated_at(const Graph& graph, std::span<const size_t> path, const Mutant& mutant,
                 const Mesh& mesh, int64_t device) {
  const NodeId id(path[0]);
  if (path.size() == 1) {
    const Consumers readers(graph);
    const Site site{graph, id, readers, mesh, device};
    for (const Change& change : changes_at(site))
      if (change.kind == mutant.kind && change.how == mutant.how) return changed(site, change);
    fail("no mutant {}", mutant.text());
  }
  Rewriter rewriter(graph);
  return rewriter.rewritten(graph.nodes().ids(), [&](NodeId each) {
    Node node = rewriter.mapped(each);
    if (each == id) {
      auto& body = node.bodies[path[1]];
      body =
          std::make_shared<const Graph>(mutated_at(*body, path.subspan(2), mutant, mesh, device));
    }
    rewriter.add(std::move(node), graph.node(each).outputs);
  });
}

// Whether the change leaves this device's program as it is.
bool is_none_on(const LoweredStep& step, const Mutant& mutant, int64_t device) {
  const std::optional<NodePath> path = path_on(step, mutant, device);
  if (!path) return true;
  const Graph* graph = &step.graphs[static_cast<size_t>(device)].graph;
  for (size_t i = 0; i + 1 < path->size(); i += 2)
    graph = graph->node(NodeId((*path)[i])).bodies[(*path)[i + 1]].get();
  const Consumers readers(*graph);
  for (const Change& change :
       changes_at({*graph, node_id(*path), readers, step.traced.mesh, device}))
    if (change.kind == mutant.kind && change.how == mutant.how) return change.is_none;
  return true;
}

bool is_none(const LoweredStep& step, const Mutant& mutant) {
  for (int64_t device = 0; device < step.devices(); ++device)
    if (!is_none_on(step, mutant, device)) return false;
  return true;
}

// The first stage that runs a node adds its mutants.
bool is_first_stage(const Node& node, int64_t stage) {
  if (!is_common(node)) return true;
  return node.attributes.has(key::kStages) ? node.attributes.get(key::kStages).front() == stage
                                           : stage == 0;
}

}  // namespace

std::string Mutant::text() const {
  return fmt::format("{}:{}|{}|{}", stage, fmt::join(path, "/"), kind, how);
}

std::vector<Mutant> all_mutants(const LoweredStep& step) {
  std::vector<Mutant> all;
  int64_t next = 0;  // Stage.
  for (int64_t device = 0; device < step.devices(); ++device) {
    const int64_t stage = step.stage_of(device);
    if (stage != next) continue;
    ++next;
    NodePath path;
    const Graph& whole = step.graphs[static_cast<size_t>(device)].graph;
    for_each_node(whole, path, [&](const Graph& graph, const Consumers& readers, const auto& here) {
      const Site site{graph, node_id(here), readers, step.traced.mesh, device};
      if (!is_first_stage(site.node(), stage)) return;
      for (const Change& change : changes_at(site)) {
        Mutant mutant{stage,
                      here,
                      change.kind,
                      change.how,
                      std::string(site.node().op->name),
                      site.node().path,
                      site.node().phase};
        if (!change.is_none || !is_none(step, mutant)) all.push_back(std::move(mutant));
      }
    });
  }
  return all;
}

Mutant parse_mutant(const LoweredStep& step, std::string_view text) {
  for (Mutant& mutant : all_mutants(step))
    if (mutant.text() == text) return mutant;
  fail("no mutant '{}'", text);
}

std::vector<Graph> mutated(const LoweredStep& step, const Mutant& mutant) {
  std::vector<Graph> graphs;
  for (int64_t device = 0; device < step.devices(); ++device) {
    const Graph& graph = step.graphs[static_cast<size_t>(device)].graph;
    const std::optional<NodePath> path = path_on(step, mutant, device);
    graphs.push_back(path ? mutated_at(graph, *path, mutant, step.traced.mesh, device) : graph);
  }
  return graphs;
}

}  // namespace tessera
