// SPDX-License-Identifier: Apache-2.0
// Makes every sum on one device: a sum that is divided between devices is added in an order that
// depends on the mesh. Where a contraction or a reduction over a split axis would give a partial
// sum, its operands are brought together first: split along an axis of the result, so that no
// device repeats the work of another, or replicated if no such axis can be divided. Part of
// numerics=mesh_invariant.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/gather.h"
#include "core/ops/grouped_product.h"
#include "core/ops/leaves.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Type without_sum(Type type) {
  if (type.partial.kind == PartialKind::kSum) type.partial = {};
  return type;
}

Type split_further(Type type, const Names& axes, const Names& mesh_axes) {
  for (Axis& axis : type.axes)
    if (contains(axes, axis.name))
      axis.split.insert(axis.split.end(), mesh_axes.begin(), mesh_axes.end());
  return type;
}

bool is_attention(const Node& node) {
  return node.op == &kAttentionOp || node.op == &kAttentionGradOp;
}

class WholeSums {
 public:
  WholeSums(const Graph& graph, const Mesh& mesh)
      : graph_(graph), mesh_(mesh), readers_(graph), rewriter_(graph) {}

  Graph run() {
    for (const GraphInput& input : graph_.inputs())
      rewriter_.copy_input(input, without_sum(graph_.type(input.value)));
    for (const NodeId id : graph_.nodes().ids()) {
      const Node& node = graph_.node(id);
      if (node.op == &kReshardOp) {
        add_reshard(node);
      } else {
        add(id);
      }
    }
    for (const GraphOutput& output : graph_.outputs())
      rewriter_.set(output.value, in_layout(output.value, without_sum(graph_.type(output.value)),
                                            graph_.value(output.value).producer));
    rewriter_.copy_outputs();
    return std::move(rewriter_.to());
  }

 private:
  const Type& new_type(ValueId old) const { return rewriter_.to().type(rewriter_.at(old)); }

  // Returns the value that replaces `old` in this layout. A reshard is added on behalf of `reader`.
  ValueId in_layout(ValueId old, const Type& type, NodeId reader) {
    if (new_type(old) == type) return rewriter_.at(old);
    const Phase phase = reader == kNone ? Phase::kForward : graph_.node(reader).phase;
    const auto [found, is_new] =
        resharded_.try_emplace(std::tuple(old, phase, type.text_sized()), kNone);
    if (is_new) {
      Node node;
      if (reader != kNone) {
        const Node& like = graph_.node(reader);
        node.site = like.site;
        node.path = like.path;
        node.remat_block = like.remat_block;
      }
      node.op = &kReshardOp;
      node.phase = phase;
      node.inputs = {rewriter_.at(old)};
      node.attributes = {{key::kType, type}};
      const NodeId id = rewriter_.to().add_node(std::move(node), {type});
      found->second = rewriter_.to().node(id).outputs[0];
    }
    return found->second;
  }

  // From the layout that the operand has now to the one asked for.
  void add_reshard(const Node& node) {
    const ValueId from = node.inputs[0], to = node.outputs[0];
    const Type type = without_sum(graph_.type(to));
    if (new_type(from) == type) {
      rewriter_.set(to, rewriter_.at(from));
      return;
    }
    Node copy = node;
    copy.inputs = {rewriter_.at(from)};
    copy.attributes.set(key::kType, type);
    rewriter_.add(std::move(copy), {to}, {type});
  }

  void add(NodeId id) {
    const Node& original = graph_.node(id);
    const Names divided = divided_over(original);
    const bool is_exact = has_one_term(original, divided);
    const Names unsplit = is_exact ? Names() : divided;
    const Names axes = unsplit.empty() ? Names() : axes_to_split(id, unsplit);
    const auto layout = [&](ValueId value) {
      return split_further(unsplit_over(without_sum(graph_.type(value)), unsplit), axes, unsplit);
    };
    Node node = original;
    for (ValueId& input : node.inputs) input = in_layout(input, layout(input), id);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(WholeSums(*body, mesh_).run());
    std::vector<SharedType> types;
    for (const ValueId output : original.outputs) {
      Type type = layout(output);
      if (is_exact && graph_.type(output).partial) type.partial = {PartialKind::kSum, divided};
      if (graph_.type(output).partial.kind == PartialKind::kMax)
        type.partial = graph_.type(output).partial;
      types.push_back(std::move(type));
    }
    rewriter_.add(std::move(node), original.outputs, types);
  }

  // The mesh axes over which this node would divide a sum, or a sequence that attention passes
  // around a ring.
  Names divided_over(const Node& node) const {
    Names divided;
    for (const ValueId output : node.outputs) {
      const Partial& partial = graph_.type(output).partial;
      if (partial.kind != PartialKind::kSum || is_repeat(node)) continue;
      for (const std::string& each : partial.mesh_axes)
        if (!contains(divided, each) && std::ranges::any_of(node.inputs, [&](ValueId input) {
              return split_over(graph_.type(input), each);
            }))
          divided.push_back(each);
    }
    if (is_attention(node))
      for (const std::string& each : graph_.type(node.inputs[0]).axis("seq").split)
        if (!contains(divided, each)) divided.push_back(each);
    return divided;
  }

  // Whether all terms but one of each sum are zero: the order does not matter.
  bool has_one_term(const Node& node, const Names& divided) const {
    if (divided.empty()) return false;
    if (node.op == &kGatherOp || node.op == &kPickOp) return true;
    return node.op == &kGroupedProductOp && std::ranges::none_of(divided, [&](const auto& each) {
             return split_over(graph_.type(node.inputs[1]), each);
           });
  }

  // The axes of the result that are split in place of those that the node adds over.
  Names axes_to_split(NodeId id, const Names& mesh_axes) const {
    const Node& node = graph_.node(id);
    if (is_attention(node)) {
      const Names heads = {"heads", "kv_heads"};
      const bool divides = divides_axis(node.inputs[0], "heads", mesh_axes) &&
                           divides_axis(node.inputs[1], "kv_heads", mesh_axes);
      return divides ? heads : Names();
    }
    if (node.op != &kEinsumOp && node.op != &kReduceSumOp) return {};
    Names best;
    int64_t least = 0;
    for (const Axis& axis : graph_.type(node.outputs[0]).axes) {
      if (!divides_axis(node.outputs[0], axis.name, mesh_axes)) continue;
      if (is_split_next(id, axis.name, mesh_axes)) return {axis.name};
      const int64_t bytes = gathered_bytes(node, axis.name);
      if (!best.empty() && bytes >= least) continue;
      best = {axis.name};
      least = bytes;
    }
    return best;
  }

  bool divides_axis(ValueId value, std::string_view name, const Names& mesh_axes) const {
    const Type type = unsplit_over(graph_.type(value), mesh_axes);
    const Axis& axis = type.axis(name);
    return axis.name != kLayersAxis &&
           axis.size % (mesh_.size_along(axis.split) * mesh_.size_along(mesh_axes)) == 0;
  }

  // Whether the result is then resharded to this split.
  bool is_split_next(NodeId id, std::string_view axis, const Names& mesh_axes) const {
    return std::ranges::any_of(readers_[graph_.node(id).outputs[0]], [&](NodeId reader) {
      const Node& node = graph_.node(reader);
      if (node.op != &kReshardOp) return false;
      const Names& split = graph_.type(node.outputs[0]).axis(axis).split;
      return std::ranges::all_of(mesh_axes,
                                 [&](const auto& each) { return contains(split, each); });
    });
  }

  // The bytes of operands that each device needs whole if `axis` is split.
  int64_t gathered_bytes(const Node& node, std::string_view axis) const {
    int64_t bytes = 0;
    for (const ValueId input : node.inputs)
      if (!graph_.type(input).has(axis)) bytes += graph_.type(input).bytes();
    return bytes;
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Consumers readers_;
  Rewriter rewriter_;
  std::map<std::tuple<ValueId, Phase, std::string>, ValueId> resharded_;
};

}  // namespace

Graph with_whole_sums(const Graph& traced, const Mesh& mesh) {
  return WholeSums(traced, mesh).run();
}

}  // namespace tessera
