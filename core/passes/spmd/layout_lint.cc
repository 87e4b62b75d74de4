// SPDX-License-Identifier: Apache-2.0
#include "core/passes/spmd/layout_lint.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/graph/op.h"
#include "core/graph/typing.h"
#include "core/passes/loop.h"
#include "core/passes/spmd/reshard_plan.h"

namespace tessera {
namespace {

// A body's graph, and where its inputs come from.
struct Place {
  const Graph* graph = nullptr;
  const Node* loop = nullptr;  // Of `outer`, whose body this is; null at the top.
  const Place* outer = nullptr;
};

struct Found {
  const Place* place = nullptr;
  ValueId value = kNone;
};

bool is_view(const Node& node) {
  return node.op->linear_view || node.op->op_class == OpClass::kView;
}

// The value that `value` views, through loops' inputs to what enters the loop.
Found source(const Place& place, ValueId value) {
  const Graph& graph = *place.graph;
  const NodeId producer = graph.value(value).producer;
  if (producer != kNone) {
    const Node& node = graph.node(producer);
    if (is_view(node) && node.inputs.size() == 1) return source(place, node.inputs[0]);
    return {&place, value};
  }
  if (place.loop == nullptr) return {&place, value};
  // A body's first input is the loop's index; the rest are the loop's operands, in order.
  for (size_t i = 1; i < graph.inputs().size(); ++i)
    if (graph.inputs()[i].value == value && i - 1 < place.loop->inputs.size())
      return source(*place.outer, place.loop->inputs[i - 1]);
  return {&place, value};
}

// The parameter it is a view of, if it is one of those.
const GraphInput* parameter_of(const Place& place, ValueId value) {
  const Found found = source(place, value);
  for (const GraphInput& input : found.place->graph->inputs())
    if (input.value == found.value && input.kind == InputKind::kParameter) return &input;
  return nullptr;
}

bool permutes(const ReshardPlan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const ReshardStep& step) { return step.kind == StepKind::kPermute; });
}

// The splits of each axis in the order that costs least to bring to `to`.
Type best_order(Type type, const Type& to, ReshardPlanner& planner) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    std::vector<std::string> order = type.axes[i].split;
    std::sort(order.begin(), order.end());
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

// Whether the value, or what it is made of element by element, is a product that was computed
// whole on every rank of the mesh axis.
bool computed_whole(const Graph& graph, ValueId value, const std::string& mesh_axis) {
  const Type& type = graph.type(value);
  if (split_over(type, mesh_axis) || type.partial.over(mesh_axis)) return false;
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return false;
  const Node& node = graph.node(producer);
  if (node.op->op_class == OpClass::kContraction) return true;
  const bool passes_on = node.op->op_class == OpClass::kElementwise || is_view(node);
  return passes_on && std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
           return computed_whole(graph, input, mesh_axis);
         });
}

class DearerLayouts {
 public:
  explicit DearerLayouts(const Mesh& mesh) : mesh_(mesh), planner_(mesh, LinkCosts::bytes_only()) {}

  void visit(const Place& place) {
    for (const Node& node : place.graph->nodes()) {
      if (node.op->op_class == OpClass::kReshard && node.phase == Phase::kForward) {
        check_order_at_rest(place, node);
        check_sliced(*place.graph, node);
      }
      if (!is_repeat(node)) continue;
      for (const auto& body : node.bodies) visit({body.get(), &node, &place});
    }
  }
  std::vector<std::string> take() { return std::move(warnings_); }

 private:
  void check_order_at_rest(const Place& place, const Node& node) {
    const Type &from = place.graph->type(node.inputs[0]), &to = place.graph->type(node.outputs[0]);
    const GraphInput* parameter = parameter_of(place, node.inputs[0]);
    if (parameter == nullptr || !permutes(planner_.plan(from, to))) return;
    const Type better = best_order(from, to, planner_);
    const int64_t bytes = planner_.plan(from, to).use.bytes();
    const int64_t fewer = planner_.plan(better, to).use.bytes();
    if (fewer >= bytes) return;
    warn(node,
         fmt::format("{} lies as {} and is used as {}, which permutes it first ({} bytes a "
                     "device); {} would take {}: mesh axes that stay go outermost",
                     parameter->name, from.layout(), to.layout(), bytes, better.layout(), fewer));
  }

  void check_sliced(const Graph& graph, const Node& node) {
    const Type &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
    for (const Axis& axis : to.axes) {
      for (const std::string& mesh_axis : axis.split) {
        if (mesh_.size(mesh_axis) == 1 || !computed_whole(graph, node.inputs[0], mesh_axis))
          continue;
        const std::string name = graph.describe(node.inputs[0]);
        warn(node, fmt::format("every rank of {} computes all of {}, {}, and keeps its part of {}: "
                               "{} times the work; split what it is computed from",
                               mesh_axis, name, from.layout(), axis.text(), mesh_.size(mesh_axis)));
      }
    }
  }

  // Layers of a stack are told apart by their index alone.
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
    if (!said_.insert(node.site.text() + without_index(what + node.path)).second) return;
    warnings_.push_back(fmt::format("{}: {}{}", node.site.text(), what, path));
  }

  const Mesh& mesh_;
  ReshardPlanner planner_;
  std::set<std::string> said_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> layout_lint(const Graph& traced, const Mesh& mesh) {
  DearerLayouts search(mesh);
  search.visit({&traced, nullptr, nullptr});
  return search.take();
}

}  // namespace tessera
