// SPDX-License-Identifier: Apache-2.0
// Changes of reductions, gathers and exchanges: what lowering makes of reshards.
#include <algorithm>
#include <utility>

#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/pipeline.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/mutants/changes.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

int64_t group_size(const Site& site) { return std::ssize(site.node().attributes.get(key::kGroup)); }

// This device's part of a value along the axis.
ValueId own_part(Edit& edit, ValueId value, const std::string& axis) {
  const int64_t index = edit.site().node().attributes.get(key::kIndex);
  const int64_t size = edit.type(value).axis(axis).size / group_size(edit.site());
  return edit.add(
      kSliceOp, {value},
      {{key::kAxis, axis}, {key::kBegin, index * size}, {key::kEnd, (index + 1) * size}});
}

// The value as often along the axis as there are devices.
ValueId copies(Edit& edit, ValueId value, const std::string& axis) {
  const std::vector<ValueId> parts(static_cast<size_t>(group_size(edit.site())), value);
  return edit.add(kConcatOp, parts, {{key::kAxis, axis}});
}

// Adds the collective over fewer, more or other mesh axes with another number of devices. Mesh axes
// with the same number are swapped (add_swaps).
void add_other_groups(const Site& site, const std::string& what, std::vector<Change>& changes) {
  const Names own = site.node().attributes.get(key::kMeshAxes);
  const auto add = [&](const std::string& how, const Names& mesh_axes) {
    if (mesh_axes.empty()) return;
    Attributes attributes = site.node().attributes;
    set_mesh_axes(site, mesh_axes, attributes);
    changes.push_back(retyped(site, "retype " + what, how, attributes));
  };
  for (const std::string& axis : wide_axes(site.mesh)) {
    Names other = own;
    if (std::erase(other, axis) > 0) {
      add("without " + axis, other);
      continue;
    }
    other.push_back(axis);
    add("also over " + axis, other);
    if (site.mesh.size(axis) != site.mesh.size_along(own)) add("over " + axis, {axis});
  }
}

// Along another axis of the operand.
void add_other_axes(const Site& site, const std::string& what, AttributeName<std::string> name,
                    std::vector<Change>& changes) {
  for (const Axis& axis : site.graph.type(site.node().inputs[0]).axes) {
    if (axis.name == site.node().attributes.get(name)) continue;
    Attributes attributes = site.node().attributes;
    attributes.set(name, axis.name);
    changes.push_back(
        retyped(site, "retype " + what, fmt::format("{} {}", name.text, axis.name), attributes));
  }
}

void add_reversed(const Site& site, const std::string& what, std::vector<Change>& changes) {
  Attributes attributes = site.node().attributes;
  std::vector<int64_t> group = attributes.get(key::kGroup);
  std::ranges::reverse(group);
  attributes.set(key::kIndex, std::ssize(group) - 1 - attributes.get(key::kIndex));
  attributes.set(key::kGroup, std::move(group));
  changes.push_back(retyped(site, "retype " + what, "reversed devices", attributes));
}

void add_all_reduce(const Site& site, std::vector<Change>& changes) {
  const std::string what = "reduction";
  changes.push_back(deleted(what));
  changes.push_back(doubled(what));
  Attributes attributes = site.node().attributes;
  const bool sums = attributes.get(key::kReduction) == "sum";
  attributes.set(key::kReduction, sums ? "max" : "sum");
  changes.push_back(retyped(site, "retype reduction", sums ? "to max" : "to sum", attributes));
  // The stages run different programs: their other nodes do not correspond.
  const Names& mesh_axes = site.node().attributes.get(key::kMeshAxes);
  if (std::ranges::find(mesh_axes, kStageAxis) != mesh_axes.end()) return;
  add_other_groups(site, what, changes);
  add_moves(site, what, changes);
}

// Adds what a collective that resizes one axis has in common with others.
void add_changes_along_axis(const Site& site, const std::string& what,
                            std::vector<Change>& changes) {
  changes.push_back(doubled(what));
  add_other_groups(site, what, changes);
  add_other_axes(site, what, key::kAxis, changes);
  add_reversed(site, what, changes);
  add_moves(site, what, changes);
}

void add_reduce_scatter(const Site& site, std::vector<Change>& changes) {
  const std::string what = "reduction", axis = site.node().attributes.get(key::kAxis);
  changes.push_back(deleted(what));
  changes.push_back(replaced("delete reduction", "own part",
                             [axis](Edit& edit) { return own_part(edit, edit.operand(), axis); }));
  changes.push_back(replaced("double reduction", "summed before", [](Edit& edit) {
    Attributes sum = edit.site().node().attributes;
    sum.set(key::kReduction, "sum");
    return edit.again(edit.add(kAllReduceOp, {edit.operand()}, sum));
  }));
  add_changes_along_axis(site, what, changes);
}

void add_gather(const Site& site, std::vector<Change>& changes) {
  const std::string what = "gather", axis = site.node().attributes.get(key::kAxis);
  changes.push_back(deleted(what));
  changes.push_back(replaced("delete gather", "copies of its operand",
                             [axis](Edit& edit) { return copies(edit, edit.operand(), axis); }));
  add_changes_along_axis(site, what, changes);
}

void add_all_to_all(const Site& site, std::vector<Change>& changes) {
  const std::string what = "exchange";
  const Attributes& own = site.node().attributes;
  const std::string split = own.get(key::kSplitAxis), concat = own.get(key::kConcatAxis);
  changes.push_back(deleted(what));
  changes.push_back(replaced("delete exchange", "copies of its part", [=](Edit& edit) {
    return copies(edit, own_part(edit, edit.operand(), split), concat);
  }));
  changes.push_back(doubled(what));
  Attributes attributes = own;
  attributes.set(key::kSplitAxis, concat);
  attributes.set(key::kConcatAxis, split);
  changes.push_back(retyped(site, "retype exchange", "split and concat swapped", attributes));
  add_other_groups(site, what, changes);
  add_other_axes(site, what, key::kSplitAxis, changes);
  add_reversed(site, what, changes);
  add_moves(site, what, changes);
}

void add_permute(const Site& site, std::vector<Change>& changes) {
  const std::string what = "exchange";
  changes.push_back(deleted(what));
  changes.push_back(doubled(what));
  // In the group's order, whatever the routes were.
  Attributes attributes = site.node().attributes;
  set_mesh_axes(site, site.node().attributes.get(key::kMeshAxes), attributes);
  for (const int64_t step : {1, -1}) {
    const int64_t from = attributes.get(step > 0 ? key::kFrom : key::kTo);
    const int64_t to = attributes.get(step > 0 ? key::kTo : key::kFrom);
    Attributes ring = attributes;
    ring.set(key::kFrom, from);
    ring.set(key::kTo, to);
    changes.push_back(
        retyped(site, "retype exchange", step > 0 ? "to the next" : "to the previous", ring));
  }
  add_moves(site, what, changes);
}

// A transfer must be made on both sides, so the value is changed where it is received.
void add_receive(const Site&, std::vector<Change>& changes) {
  changes.push_back({"delete exchange", "zeros", [](Edit& edit, NodeId id) {
                       if (id != edit.site().id) return false;
                       edit.rewriter().copy_node(id);
                       const ValueId received = edit.at(edit.site().node().outputs[0]);
                       edit.result(edit.add(kScaleOp, {received}, {{key::kFactor, 0.0}}));
                       return true;
                     }});
}

}  // namespace

void add_changes_of_collective(const Site& site, std::vector<Change>& changes) {
  const Node& node = site.node();
  if (node.op == &kAllReduceOp) add_all_reduce(site, changes);
  if (node.op == &kReduceScatterOp) add_reduce_scatter(site, changes);
  if (node.op == &kAllGatherOp) add_gather(site, changes);
  if (node.op == &kAllToAllOp) add_all_to_all(site, changes);
  if (node.op == &kPermuteOp) add_permute(site, changes);
  if (node.op == &kReceiveOp) add_receive(site, changes);
}

// Two microbatches of what a stage receives are exchanged.
void add_changes_of_pipeline(const Site& site, std::vector<Change>& changes) {
  if (!is_pipeline(site.node())) return;
  const Pipeline pipeline(site.node());
  for (size_t body = 0; body < pipeline.bodies(); ++body) {
    const Graph& graph = pipeline.body(body);
    if (std::ranges::none_of(graph.nodes(), [](const Node& n) { return n.op == &kReceiveOp; }))
      continue;
    std::vector<int64_t> calls = site.node().attributes.get(key::kCalls);
    for (size_t i = 0; i + 1 < calls.size(); i += 2)
      if (calls[i] == static_cast<int64_t>(body) && calls[i + 1] < 2) calls[i + 1] ^= 1;
    Attributes attributes = site.node().attributes;
    attributes.set(key::kCalls, calls);
    changes.push_back(
        retyped(site, "move exchange", fmt::format("microbatches of body {}", body), attributes));
  }
}

}  // namespace tessera
