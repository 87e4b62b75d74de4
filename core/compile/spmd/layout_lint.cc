// SPDX-License-Identifier: Apache-2.0
// A lint for layouts that are correct but cost more than necessary: a weight whose splits are in an
// order that must be permuted before use, and a value that every device computes whole and then
// slices. It reads the traced graph.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/compile/spmd/lower.h"
#include "core/compile/spmd/reshard_plan.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

// A graph, and for a loop body the loop and the graph that contains it.
struct Place {
  const Graph* graph = nullptr;
  const Node* loop = nullptr;  // In `outer`; null for the whole graph.
  const Place* outer = nullptr;
};

struct Found {
  const Place* place = nullptr;
  ValueId value;
};

bool is_view(const Node& node) {
  return node.op->linear_view || node.op->op_class == OpClass::kView;
}

// Returns the value that `value` is a view of, followed through the inputs of loops.
Found source(const Place& place, ValueId value) {
  const Graph& graph = *place.graph;
  const NodeId producer = graph.value(value).producer;
  if (producer != kNone) {
    const Node& node = graph.node(producer);
    if (is_view(node) && node.inputs.size() == 1) return source(place, node.inputs[0]);
    return {&place, value};
  }
  if (place.loop == nullptr) return {&place, value};
  const Loop loop(*place.loop);
  for (size_t i = 0; i < loop.operands(); ++i)
    if (loop.operand_in(i) == value) return source(*place.outer, loop.operand(i));
  return {&place, value};
}

// Returns the parameter that the value is a view of, or null.
const GraphInput* parameter_of(const Place& place, ValueId value) {
  const Found found = source(place, value);
  for (const GraphInput& input : found.place->graph->inputs())
    if (input.value == found.value && input.kind == InputKind::kParameter) return &input;
  return nullptr;
}

bool permutes(const ReshardPlan& plan) {
  return std::ranges::any_of(
      plan.steps, [](const ReshardStep& step) { return step.kind == StepKind::kPermute; });
}

// Returns `type` with the splits of each axis in the order whose reshard to `to` is cheapest.
Type best_order(Type type, const Type& to, ReshardPlanner& planner) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    std::vector<std::string> order = type.axes[i].split;
    std::ranges::sort(order);
    int64_t least = planner.plan(type, to).use.bytes();
    do {
      Type candidate = type;
      candidate.axes[i].split = order;
      const int64_t bytes = planner.plan(candidate, to).use.bytes();
      if (bytes >= least) continue;
      least = bytes;
      type = candidate;
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return type;
}

// Returns whether the value is the result of a contraction that every device along the mesh axis
// computes whole, possibly followed by elementwise ops and views.
bool computed_whole(const Graph& graph, ValueId value, const std::string& mesh_axis) {
  const Type& type = graph.type(value);
  if (split_over(type, mesh_axis) || type.partial.over(mesh_axis)) return false;
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return false;
  const Node& node = graph.node(producer);
  if (node.op->op_class == OpClass::kContraction) return true;
  const bool is_transparent = node.op->op_class == OpClass::kElementwise || is_view(node);
  return is_transparent && std::ranges::any_of(node.inputs, [&](ValueId input) {
           return computed_whole(graph, input, mesh_axis);
         });
}

class LayoutLint {
 public:
  explicit LayoutLint(const Mesh& mesh) : mesh_(mesh), planner_(mesh, LinkCosts::bytes_only()) {}

  void visit(const Place& place) {
    for (const Node& node : place.graph->nodes()) {
      if (node.op->op_class == OpClass::kReshard && node.phase == Phase::kForward) {
        check_stored_order(place, node);
        check_sliced(*place.graph, node);
      }
      if (!is_repeat(node)) continue;
      for (const auto& body : node.bodies) visit({body.get(), &node, &place});
    }
  }
  std::vector<std::string> take() { return std::move(warnings_); }

 private:
  void check_stored_order(const Place& place, const Node& node) {
    const Type &from = place.graph->type(node.inputs[0]), &to = place.graph->type(node.outputs[0]);
    const GraphInput* parameter = parameter_of(place, node.inputs[0]);
    if (parameter == nullptr || !permutes(planner_.plan(from, to))) return;
    const Type better = best_order(from, to, planner_);
    const int64_t bytes = planner_.plan(from, to).use.bytes();
    const int64_t fewer = planner_.plan(better, to).use.bytes();
    if (fewer >= bytes) return;
    warn(node,
         fmt::format("{} is stored as {} and used as {}, which needs a permute ({} bytes per "
                     "device); {} would need {} bytes: put the mesh axes that stay outermost",
                     parameter->name, from.layout(), to.layout(), bytes, better.layout(), fewer));
  }

  void check_sliced(const Graph& graph, const Node& node) {
    const Type &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
    for (const Axis& axis : to.axes) {
      for (const std::string& mesh_axis : axis.split) {
        if (mesh_.size(mesh_axis) == 1 || !computed_whole(graph, node.inputs[0], mesh_axis))
          continue;
        const std::string name = graph.describe(node.inputs[0]);
        warn(node,
             fmt::format("every device along {} computes all of {}, {}, and keeps its part of {}: "
                         "{} times the work; split its operands",
                         mesh_axis, name, from.layout(), axis.text(), mesh_.size(mesh_axis)));
      }
    }
  }

  // Removes the indices of layers in a stack.
  static std::string without_index(const std::string& text) {
    std::string result;
    bool inside = false;
    for (const char c : text) {
      if (c == ']') inside = false;
      if (!inside) result += c;
      if (c == '[') inside = true;
    }
    return result;
  }

  void warn(const Node& node, const std::string& what) {
    const std::string path = node.path.empty() ? "" : fmt::format(" [in {}]", node.path);
    if (!reported_.insert(node.site.text() + without_index(what + node.path)).second) return;
    warnings_.push_back(fmt::format("{}: {}{}", node.site.text(), what, path));
  }

  const Mesh& mesh_;
  ReshardPlanner planner_;
  std::set<std::string> reported_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> layout_lint(const Graph& traced, const Mesh& mesh) {
  LayoutLint search(mesh);
  search.visit({&traced, nullptr, nullptr});
  return search.take();
}

}  // namespace tessera
