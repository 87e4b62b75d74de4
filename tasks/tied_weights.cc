// SPDX-License-Identifier: Apache-2.0
#include "tasks/tied_weights.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"
#include "tasks/microbatches.h"

namespace tessera {
namespace {

const Node* loop_over(const Graph& graph, std::string_view axis) {
  for (const Node& node : graph.nodes())
    if (is_repeat(node) && node.phase == Phase::kForward && Loop(node).axis() == axis) return &node;
  return nullptr;
}

// Sorts the forward nodes of a body by what they depend on.
class WeightUses {
 public:
  WeightUses(const Graph& graph, const Loop& microbatches)
      : body_(microbatches.body()), of_(body_.values().size()) {
    for (const GraphInput& input : body_.inputs()) of_[input.value].is_constant = false;
    for (size_t i = 0; i < microbatches.constants(); ++i)
      for (const GraphInput& input : graph.inputs())
        if (input.kind == InputKind::kParameter && input.value == microbatches.constant(i))
          of_[microbatches.constant_in(i)].weight = input.name;
    for (const Node& node : body_.nodes())
      if (node.phase == Phase::kForward) visit(node);
  }
  // Of weights that are read before and after the stack.
  std::set<std::string> both() const {
    std::set<std::string> names;
    std::ranges::set_intersection(before_, after_, std::inserter(names, names.end()));
    return names;
  }

 private:
  struct Origin {
    bool follows_stack = false;         // Depends on the stack's output.
    bool is_constant = true;            // Depends on constants only.
    std::optional<std::string> weight;  // Depends on this weight and constants only.
  };

  void visit(const Node& node) {
    Origin origin;
    std::set<std::string> weights;
    bool has_other = false;
    for (const ValueId input : node.inputs) {
      const Origin& from = of_[input];
      origin.follows_stack |= from.follows_stack;
      origin.is_constant &= from.is_constant;
      if (from.weight) weights.insert(*from.weight);
      has_other |= !from.weight && !from.is_constant;
    }
    if (weights.size() == 1 && !has_other) {
      origin.weight = *weights.begin();
    } else {
      (origin.follows_stack ? after_ : before_).insert(weights.begin(), weights.end());
    }
    if (is_repeat(node) && Loop(node).axis() == kLayersAxis) origin = {true, false, std::nullopt};
    for (const ValueId output : node.outputs) of_[output] = origin;
  }

  const Graph& body_;
  IndexedVector<ValueId, Origin> of_;
  std::set<std::string> before_, after_;
};

}  // namespace

std::vector<std::string> tied_weights(const Graph& traced) {
  const Node* const loop = loop_over(traced, kMicrobatchAxis);
  if (loop == nullptr) return {};
  const std::set<std::string> both = WeightUses(traced, Loop(*loop)).both();
  return {both.begin(), both.end()};
}

std::vector<std::string> warnings_of_tied_weights(const Graph& traced, const Mesh& mesh) {
  std::vector<std::string> warnings;
  for (const std::string& name : tied_weights(traced)) {
    const Type& type = traced.type(traced.find_input(name)->value);
    warnings.push_back(
        fmt::format("{} is read before and after the layers, so the first and the last of {} "
                    "stages hold it and "
                    "add up its gradient in every step: {} bytes on each of their devices",
                    name, mesh.stages(), local_type(type, mesh).bytes()));
  }
  return warnings;
}

}  // namespace tessera
