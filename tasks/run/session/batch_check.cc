// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/batch_check.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr int32_t kIgnoredLabel = -100;  // ignore_index of PyTorch's losses.

// The array of the batch whose elements a value holds; "": none.
using ArrayNames = IndexedVector<ValueId, std::string>;

// Whether the results hold elements of the operand, and at most zeros besides.
bool keeps_elements(const OpDef& op) {
  return op.op_class == OpClass::kView || op.op_class == OpClass::kDataMovement ||
         op.op_class == OpClass::kReshard || op.identity || op.conversion;
}

// The operand that holds ids, and the size of the axis that they index.
std::pair<ValueId, int64_t> lookup_of(const Graph& graph, const Node& node) {
  if (node.op == &kOneHotOp) return {node.inputs[0], node.attributes.get(key::kSize)};
  for (const Op* op : {&kGatherOp, &kPickOp, &kCrossEntropyOp, &kCrossEntropyShardOp})
    if (node.op == op)
      return {node.inputs[1],
              graph.type(node.inputs[0]).axis(node.attributes.get(key::kAxis)).size};
  return {kNone, 0};
}

void find_lookups(const Graph& graph, ArrayNames names, LookupBounds* bounds) {
  for (const Node& node : graph.nodes()) {
    const auto [ids, size] = lookup_of(graph, node);
    if (ids != kNone && !names[ids].empty()) {
      LookupBound& bound = (*bounds)[names[ids]];
      if (bound.where.empty() || size < bound.size)
        bound = {size, fmt::format("'{}' in {} ({})", node.attributes.get(key::kAxis), node.path,
                                   node.site.text())};
    } else if (is_repeat(node)) {
      const Loop loop(node);
      ArrayNames inside(loop.body().values().size());
      for (size_t i = loop.carries(); i < loop.operands(); ++i)
        inside[loop.operand_in(i)] = names[loop.operand(i)];
      find_lookups(loop.body(), std::move(inside), bounds);
    } else if (node.inputs.size() == 1 && keeps_elements(*node.op)) {
      for (const ValueId output : node.outputs) names[output] = names[node.inputs[0]];
    }
  }
}

bool is_weightless(const Batch& batch, const HostArray& labels, size_t at) {
  const auto weights = batch.find("weights");
  return weights != batch.end() && weights->second.dtype == DType::kF32 &&
         weights->second.shape == labels.shape && weights->second.data<float>()[at] == 0.0f;
}

}  // namespace

LookupBounds lookup_bounds(const Graph& traced) {
  ArrayNames names(traced.values().size());
  for (const GraphInput& input : traced.inputs())
    if (input.kind == InputKind::kBatch && traced.type(input.value).dtype == DType::kI32)
      names[input.value] = input.name.substr(names::kBatchPrefix.size());
  LookupBounds bounds;
  find_lookups(traced, std::move(names), &bounds);
  return bounds;
}

void check_batch(const Batch& batch, const LookupBounds& bounds, const std::string& where) {
  for (const auto& [name, bound] : bounds) {
    const auto found = batch.find(name);
    if (found == batch.end() || found->second.dtype != DType::kI32) continue;
    const HostArray& array = found->second;
    const std::span ids(array.data<int32_t>(), array.bytes.size() / sizeof(int32_t));
    const auto is_outside = [&](int32_t id) { return id < 0 || id >= bound.size; };
    for (auto bad = std::ranges::find_if(ids, is_outside); bad != ids.end();
         bad = std::find_if(bad + 1, ids.end(), is_outside)) {
      const auto at = static_cast<size_t>(bad - ids.begin());
      const bool is_label = name == "labels";
      if (is_label && is_weightless(batch, array, at)) continue;
      const bool is_ignored = is_label && *bad == kIgnoredLabel;
      const size_t row_size = ids.size() / static_cast<size_t>(array.shape[0]);
      fail("{}: '{}' is {} in row {}, position {}; expected 0 to {}, which {} has{}", where, name,
           *bad, at / row_size, at % row_size, bound.size - 1, bound.where,
           is_ignored ? ". To leave a label out of the loss, set its element of 'weights' to 0"
                      : "");
    }
  }
}

}  // namespace tessera
