// SPDX-License-Identifier: Apache-2.0
// Changes of slices and pads, scales, and masks: those of attention, those that make a value a
// partial sum, and the positions of shards, which mask what other devices hold.
#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "tests/mutants/changes.h"

namespace tessera {
namespace {

// Slices and pads, by the size of the part that they select.
void add_offsets(const Site& site, int64_t part, int64_t whole, std::vector<Change>& changes) {
  const bool is_slice = site.node().op == &kSliceOp;
  const AttributeName<int64_t> first = is_slice ? key::kBegin : key::kBefore;
  const AttributeName<int64_t> second = is_slice ? key::kEnd : key::kAfter;
  const int64_t begin = site.node().attributes.get(first);
  const auto add = [&](const char* how, int64_t at) {
    Attributes attributes = site.node().attributes;
    attributes.set(first, at);
    attributes.set(second, is_slice ? at + part : whole - part - at);
    changes.push_back(retyped(site, "retype slice", how, attributes));
  };
  add("next part", begin + part >= whole ? 0 : begin + part);
  if (site.node().attributes.has(key::kMeshAxes)) add("first part", 0);
  if (part > 1)
    add("one further", begin + part < whole ? begin + 1 : std::max<int64_t>(begin - 1, 0));
}

// Whether the op depends on the position along this axis of its anchor. An op with an axis of its
// own, such as a gather, compares ids with positions along that axis only.
bool reads_position(const Site& site, const Axis& axis) {
  if (site.mesh.size_along(axis.split) == 1) return false;
  const Attributes& attributes = site.node().attributes;
  return !attributes.has(key::kAxis) || attributes.get(key::kAxis) == axis.name;
}

// The position of a shard: the first element along each axis of the global array.
void add_position(const Site& site, std::vector<Change>& changes) {
  const std::vector<int64_t> extent = site.node().attributes.get(key::kExtent);
  const std::vector<int64_t> origin = site.node().attributes.get(key::kOrigin);
  const Type whole = site.node().attributes.get(key::kAnchor);
  const auto reads = [&](const Axis& axis) { return reads_position(site, axis); };
  if (std::ranges::none_of(whole.axes, reads)) return;
  const auto add = [&](const char* kind, const char* how, const auto& position) {
    Attributes attributes = site.node().attributes;
    std::vector<int64_t> at = origin;
    for (size_t i = 0; i < at.size(); ++i) at[i] = position(i);
    attributes.set(key::kOrigin, at);
    changes.push_back(retyped(site, kind, how, attributes));
  };
  const auto part = [&](size_t i) { return extent[i] / site.mesh.size_along(whole.axes[i].split); };
  add("delete mask", "position 0", [](size_t) { return int64_t{0}; });
  add("retype mask", "position of the next part",
      [&](size_t i) { return (origin[i] + part(i)) % extent[i]; });
}

void add_attention(const Site& site, std::vector<Change>& changes) {
  Attributes attributes = site.node().attributes;
  const bool causal = attributes.get(key::kCausal);
  attributes.set(key::kCausal, !causal);
  changes.push_back(retyped(site, causal ? "delete mask" : "retype mask",
                            causal ? "not causal" : "causal", attributes));
  if (!attributes.get(key::kSegments)) return;
  // Operands 3 and 4 are the ids of queries and keys.
  changes.push_back({"delete mask", "one segment", [](Edit& edit, NodeId id) {
                       if (id != edit.site().id) return false;
                       Node node = edit.rewriter().mapped(id);
                       node.inputs.erase(node.inputs.begin() + 3, node.inputs.begin() + 5);
                       node.attributes.set(key::kSegments, false);
                       edit.rewriter().add(std::move(node), edit.site().node().outputs);
                       return true;
                     }});
}

void add_mask(const Site& site, std::vector<Change>& changes) {
  // Masked twice is masked once: no mutant.
  changes.push_back(deleted("mask"));
  changes.push_back(replaced("retype mask", "negated", [](Edit& edit) {
    const ValueId other = edit.add(kLogicalNotOp, {edit.operand(1)});
    return edit.add(kMaskOp, {edit.operand(0), other});
  }));
  add_moves(site, "mask", changes);
}

void add_owner(const Site& site, std::vector<Change>& changes) {
  // Any one device may be the owner.
  Attributes attributes = site.node().attributes;
  changes.push_back(deleted("mask"));
  changes.back().is_none = attributes.get(key::kIsOwner);
  attributes.set(key::kIsOwner, false);
  changes.push_back(retyped(site, "retype mask", "no owner", attributes));
  add_moves(site, "mask", changes);
}

}  // namespace

void add_changes_of_slice(const Site& site, std::vector<Change>& changes) {
  const Node& node = site.node();
  if (node.op != &kSliceOp && node.op != &kPadOp) return;
  const std::string& axis = node.attributes.get(key::kAxis);
  const int64_t in = site.graph.type(node.inputs[0]).axis(axis).size;
  const int64_t out = site.graph.type(node.outputs[0]).axis(axis).size;
  changes.push_back(deleted("slice"));
  changes.push_back(doubled("slice"));
  add_offsets(site, std::min(in, out), std::max(in, out), changes);
  add_moves(site, "slice", changes);
}

void add_changes_of_scale(const Site& site, std::vector<Change>& changes) {
  const Node& node = site.node();
  if (node.op != &kScaleOp) return;
  const bool is_identity = node.attributes.get(key::kFactor) == 1.0;
  if (!is_identity) {
    changes.push_back(deleted("scale"));
    changes.push_back(doubled("scale"));
    add_moves(site, "scale", changes);
  }
  std::set<int64_t> sizes;
  for (const std::string& axis : wide_axes(site.mesh)) sizes.insert(site.mesh.size(axis));
  for (const int64_t size : sizes) {
    for (const bool grows : {true, false}) {
      const auto factor = static_cast<double>(size);
      Attributes attributes = node.attributes;
      attributes.set(key::kFactor,
                     node.attributes.get(key::kFactor) * (grows ? factor : 1.0 / factor));
      changes.push_back(retyped(site, "retype scale",
                                fmt::format("{} {}", grows ? "times" : "by", size), attributes));
    }
  }
}

void add_changes_of_mask(const Site& site, std::vector<Change>& changes) {
  const Node& node = site.node();
  if (node.op == &kMaskOp) add_mask(site, changes);
  if (node.op == &kMaskToOwnerOp) add_owner(site, changes);
  if (node.op == &kAttentionOp || node.op == &kAttentionGradOp) add_attention(site, changes);
  if (node.attributes.has(key::kOrigin)) add_position(site, changes);
}

}  // namespace tessera
