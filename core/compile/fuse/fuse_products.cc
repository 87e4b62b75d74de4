// SPDX-License-Identifier: Apache-2.0
// Epilogues of matrix products: what is done to each element of a product moves into its node, for
// backends that apply it before they store the product (as GEMM libraries do). Before fuse(). Nodes
// are not moved to another phase. An activation whose result an elementwise node reads is left to
// fuse(). Loop bodies are treated separately. Linear in the graph.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compile/fuse/fuse.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// The axes along a row of the result as a matrix: of its last axis's operand alone. Empty if the
// last axis is in both operands.
std::vector<Axis> row_axes(const Graph& graph, const Node& product) {
  const Type &x = graph.type(product.inputs[0]), &y = graph.type(product.inputs[1]);
  const Type& result = graph.type(product.outputs[0]);
  const auto last = std::find_if(result.axes.rbegin(), result.axes.rend(),
                                 [](const Axis& axis) { return axis.size != 1; });
  if (last == result.axes.rend() || (x.has(last->name) && y.has(last->name))) return {};
  const Type& other = x.has(last->name) ? y : x;
  std::vector<Axis> row;
  for (const Axis& axis : result.axes)
    if (!other.has(axis.name)) row.push_back(axis);
  return row;
}

// A product and the nodes that follow it, in order.
struct ProductChain {
  std::vector<NodeId> nodes;
  ValueId result;
  ValueId saved;  // The operand of an activation that others read too, or kNone.
};

class ProductFuser : GroupPass {
 public:
  using GroupPass::GroupPass;

  Graph fuse() {
    std::unordered_map<NodeId, ProductChain> by_place;
    NodeFlags is_taken(graph_.nodes().size());
    for (const NodeId id : graph_.nodes().ids()) {
      const OpDef* const op = graph_.node(id).op;
      if (op != &kEinsumOp && op != &kFp8ProductOp) continue;
      ProductChain chain = chain_of(id);
      // A node may follow two products: the first takes it.
      const auto end =
          std::ranges::find_if(chain.nodes, [&](NodeId each) { return is_taken[each]; });
      if (end != chain.nodes.end()) {
        chain.nodes.erase(end, chain.nodes.end());
        chain.result = graph_.node(chain.nodes.back()).outputs[0];
        chain.saved = {};
      }
      if (chain.nodes.size() == 1) continue;
      for (const NodeId each : chain.nodes) is_taken[each] = true;
      by_place.emplace(place_of(chain), std::move(chain));
    }
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      if (const auto found = by_place.find(id); found != by_place.end())
        add_product(found->second);
      else if (!is_taken[id])
        move_node(id, fuse_products);
    });
  }

 private:
  // The only reader, if it is elementwise, of the phase and reads the value once; else kNone.
  NodeId only_reader(ValueId value, Phase phase) const {
    const std::span<const NodeId> readers = readers_[value];
    if (is_output_[value] || readers.size() != 1) return kNone;
    const Node& reader = graph_.node(readers[0]);
    const bool once = std::ranges::count(reader.inputs, value) == 1;
    return once && reader.phase == phase && reader.op->fusible ? readers[0] : kNone;
  }

  ProductChain chain_of(NodeId product) const {
    ProductChain chain{{product}, graph_.node(product).outputs[0], {}};
    take_cast(chain);
    take_bias(chain);
    if (!take_activation(chain)) take_gradient_or_sum(chain);
    return chain;
  }

  const Node& first(const ProductChain& chain) const { return graph_.node(chain.nodes[0]); }
  void take(ProductChain& chain, NodeId id) const {
    chain.nodes.push_back(id);
    chain.result = graph_.node(id).outputs[0];
  }

  void take_cast(ProductChain& chain) const {
    const NodeId id = only_reader(chain.result, first(chain).phase);
    if (id == kNone || graph_.node(id).op != &kCastOp) return;
    const DType from = graph_.type(chain.result).dtype;
    const DType to = graph_.type(graph_.node(id).outputs[0]).dtype;
    if (from == DType::kBF16 && to == DType::kF32) take(chain, id);
  }

  // The other operand of the add that alone reads the result.
  std::pair<NodeId, ValueId> only_add(const ProductChain& chain) const {
    const NodeId id = only_reader(chain.result, first(chain).phase);
    if (id == kNone || graph_.node(id).op != &kAddOp) return {kNone, {}};
    const Node& add = graph_.node(id);
    if (graph_.type(add.outputs[0]).axes != graph_.type(chain.result).axes) return {kNone, {}};
    return {id, add.inputs[add.inputs[0] == chain.result ? 1 : 0]};
  }

  void take_bias(ProductChain& chain) const {
    const auto [id, bias] = only_add(chain);
    if (id == kNone) return;
    const std::vector<Axis>& axes = graph_.type(bias).axes;
    const Type& result = graph_.type(chain.result);
    if (axes.empty() || axes.size() == result.axes.size()) return;
    if (axes == row_axes(graph_, first(chain))) take(chain, id);
  }

  // Whether an elementwise node reads the result of an activation, as the product with the other
  // half of a gated layer does. One loop then computes both, and nobody stores the activation.
  bool joins_loop(NodeId activation) const {
    const Node& node = graph_.node(activation);
    const Type& space = graph_.type(node.outputs[0]);
    return std::ranges::any_of(readers_[node.outputs[0]], [&](NodeId id) {
      const Node& reader = graph_.node(id);
      return reader.op->fusible && reader.phase == node.phase &&
             graph_.type(reader.outputs[0]).axes == space.axes;
    });
  }

  // Reads of others may precede the activation only if they are not moved before the product.
  bool take_activation(ProductChain& chain) const {
    NodeId found;
    for (const NodeId id : readers_[chain.result]) {
      const Node& node = graph_.node(id);
      if (node.op != &kGeluTanhOp && node.op != &kSiluOp) continue;
      if (node.phase == first(chain).phase && found == kNone) found = id;
    }
    if (found == kNone || joins_loop(found)) return false;
    const std::span<const NodeId> readers = readers_[chain.result];
    if (std::ranges::any_of(readers, [&](NodeId id) { return id < found; })) return false;
    const ValueId operand = chain.result;
    take(chain, found);
    if (readers.size() > 1 || is_output_[operand]) chain.saved = operand;
    return true;
  }

  void take_gradient_or_sum(ProductChain& chain) const {
    const NodeId id = only_reader(chain.result, first(chain).phase);
    if (id == kNone) return;
    const Node& node = graph_.node(id);
    const Type& result = graph_.type(chain.result);
    const bool biased = std::any_of(chain.nodes.begin() + 1, chain.nodes.end(),
                                    [&](NodeId each) { return graph_.node(each).op == &kAddOp; });
    if (biased) return;
    if (node.op == &kGeluTanhGradOp || node.op == &kSiluGradOp) {
      if (node.inputs[1] == chain.result && graph_.type(node.inputs[0]) == result) take(chain, id);
    } else if (const auto [add, other] = only_add(chain); add != kNone) {
      if (graph_.type(other) == result) take(chain, add);
    }
  }

  // The node whose place the chain takes: the product, which frees its factors, or the last node if
  // an operand of the others is not there yet. A sum of gradients may be traced far behind.
  NodeId place_of(const ProductChain& chain) const {
    const NodeId product = chain.nodes.front();
    for (const NodeId id : chain.nodes) {
      for (const ValueId value : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(value).producer;
        const bool inside = std::ranges::find(chain.nodes, producer) != chain.nodes.end();
        if (!inside && producer != kNone && producer > product) return chain.nodes.back();
      }
    }
    return product;
  }

  void add_product(const ProductChain& chain) {
    std::vector<ValueId> results = {chain.result};
    if (chain.saved != kNone) results.push_back(chain.saved);
    rewriter_.add_group(kFusedProductOp, chain.nodes, results);
  }
};

}  // namespace

Graph fuse_products(Graph lowered) { return ProductFuser(std::move(lowered)).fuse(); }

}  // namespace tessera
