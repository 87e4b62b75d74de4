// SPDX-License-Identifier: Apache-2.0
// Residual sums beside norms: a norm and the add of its operand, or the gradient of a norm and the
// add of its dx and another cotangent, become one node. After fuse_products(), which adds a
// residual to a product before it is stored, and before fuse(). Loop bodies are treated separately.
// Linear in the graph.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compile/fuse/fuse.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace tessera {
namespace {

bool is_norm(const Node& node) { return node.op == &kRmsNormOp || node.op == &kLayerNormOp; }
bool is_gradient(const Node& node) {
  return node.op == &kRmsNormGradOp || node.op == &kLayerNormGradOp;
}

class NormFuser : GroupPass {
 public:
  explicit NormFuser(Graph graph) : GroupPass(std::move(graph)), norm_of_(graph_.nodes().size()) {}

  Graph fuse() {
    std::unordered_map<NodeId, NodeId> add_of;  // By norm, whose place the two take.
    for (const NodeId id : graph_.nodes().ids()) {
      const NodeId add = is_norm(graph_.node(id))       ? sum_before(id)
                         : is_gradient(graph_.node(id)) ? sum_behind(id)
                                                        : kNone;
      if (add == kNone || norm_of_[add] != kNone) continue;
      norm_of_[add] = id;
      add_of.emplace(id, add);
    }
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      if (const auto found = add_of.find(id); found != add_of.end())
        add_pair(id, found->second);
      else if (norm_of_[id] == kNone)
        move_node(id, fuse_norms);
    });
  }

 private:
  // Whether the node adds two arrays like its result.
  bool adds_equals(const Node& node) const {
    const Type& sum = graph_.type(node.outputs[0]);
    return node.op == &kAddOp && node.inputs[0] != node.inputs[1] &&
           std::ranges::all_of(node.inputs, [&](ValueId value) {
             const NodeId producer = graph_.value(value).producer;
             return graph_.type(value) == sum &&
                    (producer == kNone || !graph_.node(producer).op->foldable);
           });
  }

  // The add whose sum a norm reads before any other node. Where an elementwise node makes an
  // operand of the add, their loop does not store this operand, and the sum stays in it.
  NodeId sum_before(NodeId norm) const {
    const ValueId x = graph_.node(norm).inputs[0];
    const NodeId id = graph_.value(x).producer;
    if (id == kNone || !adds_equals(graph_.node(id))) return kNone;
    const Node& add = graph_.node(id);
    const auto in_loop = [&](ValueId value) {
      const NodeId producer = graph_.value(value).producer;
      return producer != kNone && graph_.node(producer).op->fusible &&
             graph_.node(producer).phase == add.phase;
    };
    const bool first = std::ranges::all_of(readers_[x], [&](NodeId each) { return each >= norm; });
    const bool joins =
        add.phase == graph_.node(norm).phase && first && std::ranges::none_of(add.inputs, in_loop);
    return joins ? id : kNone;
  }

  // The add of dx and of a cotangent that is there before the gradient runs.
  NodeId sum_behind(NodeId gradient) const {
    const ValueId dx = graph_.node(gradient).outputs[0];
    if (is_output_[dx] || readers_[dx].size() != 1) return kNone;
    const NodeId id = readers_[dx][0];
    const Node& add = graph_.node(id);
    if (!adds_equals(add) || add.phase != graph_.node(gradient).phase) return kNone;
    const NodeId producer = graph_.value(add.inputs[add.inputs[0] == dx ? 1 : 0]).producer;
    if (producer == kNone) return id;
    const NodeId place = norm_of_[producer] == kNone ? producer : norm_of_[producer];
    return place < gradient ? id : kNone;
  }

  void add_pair(NodeId norm, NodeId add) {
    std::vector<ValueId> results = graph_.node(norm).outputs;
    const ValueId sum = graph_.node(add).outputs[0];
    if (is_gradient(graph_.node(norm))) {
      results[0] = sum;
      rewriter_.add_group(kFusedNormOp, {norm, add}, results);
      return;
    }
    if (is_output_[sum] || readers_[sum].size() > 1) results.push_back(sum);
    rewriter_.add_group(kFusedNormOp, {add, norm}, results);
  }

  IndexedVector<NodeId, NodeId> norm_of_;  // The norm that an add is in one node with, or kNone.
};

}  // namespace

Graph fuse_norms(Graph lowered) { return NormFuser(std::move(lowered)).fuse(); }

}  // namespace tessera
