// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/changes.h"

#include <algorithm>
#include <utility>

#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool is_gradient(const Node& node) { return node.op->name.ends_with("_grad"); }

bool is_relayout(const Node& node) {
  return node.op == &kAllGatherOp || node.op == &kSliceOp || node.op == &kAllToAllOp ||
         node.op == &kPermuteOp || node.op == &kPadOp;
}

// Whether the op is a sum or a product with other operands, as far as this operand is concerned: a
// sum over devices and a factor pass through it.
bool is_linear_in(const Node& node, ValueId operand) {
  if (node.op->linear || node.op->linear_view || node.op->identity || is_gradient(node))
    return true;
  static const std::vector<const OpDef*> kLinear = {
      &kMulOp, &kEinsumOp, &kMaskOp, &kWhereOp, &kConcatOp, &kReduceSumOp, &kDropoutOp};
  if (std::ranges::find(kLinear, node.op) != kLinear.end()) return true;
  return (node.op == &kDivOp && node.inputs[0] == operand) || node.op->op_class == OpClass::kView ||
         node.op->op_class == OpClass::kDataMovement || node.op->op_class == OpClass::kReshard;
}

// Whether the site slices `operand` along an axis that the other operands of `node` do not have.
bool is_sliced_alone(const Site& site, const Node& node, ValueId operand) {
  return site.node().op == &kSliceOp && std::ranges::none_of(node.inputs, [&](ValueId input) {
           return input != operand &&
                  site.graph.type(input).has(site.node().attributes.get(key::kAxis));
         });
}

// Whether the site's op and `node`, which reads it, may be exchanged without a change of the
// result.
bool commutes(const Site& site, const Node& node, ValueId operand) {
  if (!is_relayout(site.node())) return is_linear_in(node, operand);
  // Elements are moved before or after; an einsum refuses it unless the axis is one of the result.
  const bool is_alike = node.op->op_class == OpClass::kElementwise ||
                        node.op->op_class == OpClass::kView ||
                        node.op->op_class == OpClass::kDataMovement;
  return node.op == &kEinsumOp ||
         (is_alike && (node.inputs.size() == 1 || is_sliced_alone(site, node, operand)));
}

bool is_floating_value(const Site& site, ValueId value) {
  return is_floating(site.graph.type(value).dtype);
}

// f(op(x), …) becomes op(f(x, …)).
Change after_reader(const Site& site, const std::string& what) {
  const NodeId reader = site.reader_id();
  return {"move " + what, fmt::format("after {}", site.reader()->op->name),
          [reader](Edit& edit, NodeId id) {
            if (id != reader) return false;
            Node node = edit.rewriter().mapped(id);
            const ValueId moved = edit.at(edit.site().node().outputs[0]);
            std::ranges::replace(node.inputs, moved, edit.operand());
            const std::vector<ValueId> made = edit.add(std::move(node));
            const std::vector<ValueId>& old = edit.site().graph.node(id).outputs;
            for (size_t i = 0; i < old.size(); ++i) edit.rewriter().set(old[i], made[i]);
            edit.rewriter().set(old[0], edit.again(made[0]));
            return true;
          }};
}

// f(op(x), y) becomes f(x, op(y)).
Change to_operand(const Site& site, const std::string& what, size_t operand) {
  const NodeId reader = site.reader_id();
  return {"move " + what, fmt::format("to operand {} of {}", operand, site.reader()->op->name),
          [reader, operand](Edit& edit, NodeId id) {
            if (id != reader) return false;
            Node node = edit.rewriter().mapped(id);
            const ValueId moved = edit.at(edit.site().node().outputs[0]);
            node.inputs[operand] = edit.again(node.inputs[operand]);
            std::ranges::replace(node.inputs, moved, edit.operand());
            const std::vector<ValueId> made = edit.add(std::move(node));
            const std::vector<ValueId>& old = edit.site().graph.node(id).outputs;
            for (size_t i = 0; i < old.size(); ++i) edit.rewriter().set(old[i], made[i]);
            return true;
          }};
}

// op(f(x, …)) becomes f(op(x), …).
Change before_producer(const Site& site, const std::string& what, size_t operand) {
  const NodeId producer = site.graph.value(site.node().inputs[0]).producer;
  const size_t result = site.graph.value(site.node().inputs[0]).result;
  return replaced(
      "move " + what,
      fmt::format("before operand {} of {}", operand, site.graph.node(producer).op->name),
      [producer, operand, result](Edit& edit) {
        Node node = edit.rewriter().mapped(producer);
        node.inputs[operand] = edit.again(node.inputs[operand]);
        return edit.add(std::move(node))[result];
      });
}

void add_moves_before(const Site& site, const std::string& what, std::vector<Change>& changes) {
  const NodeId id = site.graph.value(site.node().inputs[0]).producer;
  if (id == kNone || is_relayout(site.node())) return;
  const Node& producer = site.graph.node(id);
  if (!producer.bodies.empty() || producer.op->op_class == OpClass::kCollective) return;
  for (size_t i = 0; i < producer.inputs.size(); ++i) {
    const ValueId operand = producer.inputs[i];
    // A contraction over a split axis makes the sum over devices: there the sum may not go before.
    const bool sums = producer.op == &kEinsumOp && is_collective(site.node());
    if (is_floating_value(site, operand) && (sums || !commutes(site, producer, operand)))
      changes.push_back(before_producer(site, what, i));
  }
}

// `mesh_axes` with a and b exchanged.
Names swapped(Names mesh_axes, const std::string& a, const std::string& b) {
  for (std::string& each : mesh_axes) {
    if (each == a) {
      each = b;
    } else if (each == b) {
      each = a;
    }
  }
  return mesh_axes;
}

// The order of the devices has no meaning for a sum to all, nor for its owner.
bool has_order(const Node& node) { return node.op != &kAllReduceOp && node.op != &kMaskToOwnerOp; }

void add_swap(const Site& site, const std::string& a, const std::string& b,
              std::vector<Change>& changes) {
  Attributes attributes = site.node().attributes;
  if (!attributes.has(key::kMeshAxes) || attributes.has(key::kStages)) return;
  const Names before = attributes.get(key::kMeshAxes), after = swapped(before, a, b);
  const bool has_both = std::ranges::is_permutation(before, after);
  if (after == before || (has_both && !has_order(site.node()))) return;
  set_mesh_axes(site, after, attributes);
  changes.push_back(retyped(site, "swap mesh axes", fmt::format("{} and {}", a, b), attributes));
}

}  // namespace

Change replaced(const std::string& kind, const std::string& how,
                std::function<ValueId(Edit& edit)> make) {
  return {kind, how, [make = std::move(make)](Edit& edit, NodeId id) {
            if (id != edit.site().id) return false;
            edit.result(make(edit));
            return true;
          }};
}

Change deleted(const std::string& what) {
  return replaced("delete " + what, "its operand", [](Edit& edit) { return edit.operand(); });
}

Change doubled(const std::string& what) {
  return replaced("double " + what, "twice",
                  [](Edit& edit) { return edit.again(edit.again(edit.operand())); });
}

Change retyped(const Site& site, const std::string& kind, const std::string& how,
               Attributes attributes) {
  const bool is_none = attributes == site.node().attributes;
  const auto apply = [attributes = std::move(attributes)](Edit& edit, NodeId id) {
    if (id != edit.site().id) return false;
    Node node = edit.rewriter().mapped(id);
    node.attributes = attributes;
    edit.rewriter().add(std::move(node), edit.site().node().outputs);
    return true;
  };
  return {kind, how, apply, is_none};
}

void add_moves(const Site& site, const std::string& what, std::vector<Change>& changes) {
  const Node* const reader = site.reader();
  const ValueId result = site.node().outputs[0];
  if (reader != nullptr && reader->bodies.empty() && !is_collective(*reader)) {
    if (!commutes(site, *reader, result)) changes.push_back(after_reader(site, what));
    const bool is_product = reader->op == &kMulOp || reader->op == &kEinsumOp;
    for (size_t i = 0; i < reader->inputs.size(); ++i)
      if (reader->inputs[i] != result && is_floating_value(site, reader->inputs[i]) && !is_product)
        changes.push_back(to_operand(site, what, i));
  }
  add_moves_before(site, what, changes);
}

void add_swaps(const Site& site, std::vector<Change>& changes) {
  const Names axes = wide_axes(site.mesh);
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = i + 1; j < axes.size(); ++j)
      if (site.mesh.size(axes[i]) == site.mesh.size(axes[j]))
        add_swap(site, axes[i], axes[j], changes);
}

std::vector<std::string> wide_axes(const Mesh& mesh) {
  Names axes;
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size() > 1 && axis.name != kStageAxis) axes.push_back(axis.name);
  return axes;
}

void set_mesh_axes(const Site& site, const std::vector<std::string>& mesh_axes,
                   Attributes& attributes) {
  const int64_t index = site.mesh.index_along(site.device, mesh_axes);
  attributes.set(key::kMeshAxes, mesh_axes);
  if (is_collective(site.node())) {
    attributes.set(key::kGroup, site.mesh.group(site.device, mesh_axes));
    attributes.set(key::kIndex, index);
  } else if (site.node().op == &kMaskToOwnerOp) {
    attributes.set(key::kIsOwner, index == 0);
  } else if (site.node().op == &kSliceOp) {
    const int64_t size = attributes.get(key::kEnd) - attributes.get(key::kBegin);
    attributes.set(key::kBegin, index * size);
    attributes.set(key::kEnd, (index + 1) * size);
  } else if (site.node().op == &kPadOp) {
    const std::string& axis = attributes.get(key::kAxis);
    const int64_t size = site.graph.type(site.node().inputs[0]).axis(axis).size;
    attributes.set(key::kBefore, index * size);
    attributes.set(key::kAfter, (site.mesh.size_along(mesh_axes) - 1 - index) * size);
  }
  if (site.node().op != &kPermuteOp) return;
  // The shard that this device receives, and the one it sends, are those across the other axes.
  const auto& group = attributes.get(key::kGroup);
  const auto other = static_cast<size_t>((index + 1) % std::ssize(group));
  const auto previous = static_cast<size_t>((index + std::ssize(group) - 1) % std::ssize(group));
  attributes.set(key::kFrom, int64_t{group[previous]});
  attributes.set(key::kTo, int64_t{group[other]});
}

std::vector<Change> changes_at(const Site& site) {
  std::vector<Change> changes;
  add_changes_of_collective(site, changes);
  add_changes_of_slice(site, changes);
  add_changes_of_scale(site, changes);
  add_changes_of_mask(site, changes);
  add_changes_of_pipeline(site, changes);
  if (!site.node().attributes.has(key::kMeshAxes)) return changes;
  add_swaps(site, changes);
  // The neighbours of a collective of all stages differ between them.
  const Names& mesh_axes = site.node().attributes.get(key::kMeshAxes);
  if (std::ranges::find(mesh_axes, kStageAxis) != mesh_axes.end())
    std::erase_if(changes, [](const Change& change) { return change.kind.starts_with("move"); });
  return changes;
}

}  // namespace tessera
