// SPDX-License-Identifier: Apache-2.0
// Multi-tensor updates: the adam_update nodes of parameters become `fused_updates` nodes, which a
// backend runs as one launch. Only updates that wait for all gradients anyway, because the clip
// scale or the decision to skip the step depends on them: others run as soon as they can, which
// frees their gradient. Before fuse(). Linear in the graph.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/compile/fuse/fuse.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"

namespace tessera {
namespace {

// Updates with the same text can share a launch: attributes and dtypes agree, except for those that
// a launch has for each parameter.
std::string shared_text(const Graph& graph, const Node& update) {
  constexpr std::string_view kOwn[] = {key::kWeightDecay.text, key::kStream.text, key::kFirst.text,
                                       key::kOrigin.text,      key::kExtent.text, key::kRows.text,
                                       key::kAnchor.text};
  Attributes attributes;
  for (const Attributes::Entry& entry : update.attributes.entries())
    if (std::ranges::find(kOwn, entry.name) == std::end(kOwn)) attributes.set(entry);
  std::string text = attributes.text();
  for (const size_t moment : {AdamOperand::kFirst, AdamOperand::kSecond})
    text += fmt::format(" {}", dtype_name(graph.type(update.inputs[moment]).dtype));
  for (size_t i = AdamOperand::kRate; i < update.inputs.size(); ++i)
    text += fmt::format(" {}", update.inputs[i]);
  return text;
}

class UpdateFuser : GroupPass {
 public:
  explicit UpdateFuser(Graph graph) : GroupPass(std::move(graph)) {
    for (const NodeId id : graph_.nodes().ids())
      if (graph_.node(id).op == &kAdamUpdateOp) join_group(id);
  }

  Graph fuse() {
    std::map<NodeId, const Group*> by_first;
    NodeFlags is_grouped(graph_.nodes().size());
    for (const Group& group : groups_) {
      if (group.nodes.size() < 2) continue;
      by_first.emplace(group.nodes[0], &group);
      for (const NodeId id : group.nodes) is_grouped[id] = true;
    }
    if (by_first.empty() && is_in_order(graph_)) return std::move(graph_);
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      if (const auto found = by_first.find(id); found != by_first.end()) {
        add_group(found->second->nodes);
      } else if (!is_grouped[id]) {
        rewriter_.move_node(graph_, id);
      }
    });
  }

 private:
  // Updates, each with its cast, and what their scale and decision depend on.
  struct Group {
    std::vector<NodeId> nodes;
    ValueFlags awaited;
  };

  void join_group(NodeId id) {
    const Node& node = graph_.node(id);
    const auto [at, is_new] = number_.try_emplace(shared_text(graph_, node), groups_.size());
    if (is_new)
      groups_.push_back({{},
                         ancestors(graph_, {node.inputs[AdamOperand::kScale],
                                            node.inputs[AdamOperand::kApply]})});
    Group* group = &groups_[at->second];
    const bool waits = group->awaited[node.inputs[AdamOperand::kGradient]];
    // The group takes the place of its first node.
    const bool in_time = std::ranges::all_of(node.inputs, [&](ValueId value) {
      const NodeId producer = graph_.value(value).producer;
      return producer == kNone || group->nodes.empty() || producer < group->nodes[0];
    });
    if (!waits || !in_time) group = &groups_.emplace_back();
    group->nodes.push_back(id);
    const std::span<const NodeId> readers = readers_[node.outputs[AdamOperand::kParameter]];
    const auto copy = std::ranges::find_if(readers, [&](NodeId each) { return is_copy(each); });
    if (copy != readers.end()) group->nodes.push_back(*copy);
  }

  bool is_copy(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.op == &kCastOp && node.phase == Phase::kUpdate &&
           graph_.type(node.outputs[0]).dtype == DType::kBF16;
  }

  void add_group(const std::vector<NodeId>& ids) {
    std::vector<ValueId> results;
    size_t updates = 0;
    for (const NodeId id : ids) {
      for (const ValueId value : graph_.node(id).outputs) results.push_back(value);
      updates += graph_.node(id).op == &kAdamUpdateOp ? 1 : 0;
    }
    const NodeId made = rewriter_.add_group(kFusedUpdatesOp, ids, results);
    if (updates > 1)
      rewriter_.to().node(made).path += fmt::format(" and {} more parameters", updates - 1);
  }

  std::vector<Group> groups_;
  std::map<std::string, size_t> number_;  // Index of the group by shared_text().
};

}  // namespace

Graph fuse_updates(Graph lowered) { return UpdateFuser(std::move(lowered)).fuse(); }

}  // namespace tessera
