// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/batch_check.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "tasks/base_task.h"

namespace tessera {
namespace {

constexpr int32_t kIgnoredLabel = -100;  // Of PyTorch's losses.

// The array of the batch whose elements a value holds; "": none.
using ArrayNames = IndexedVector<ValueId, std::string>;

// Whether the results hold elements of the operand, and at most zeros besides.
bool keeps_elements(const OpDef& op) {
  return op.op_class == OpClass::kView || op.op_class == OpClass::kDataMovement ||
         op.op_class == OpClass::kReshard || op.identity || op.conversion;
}

// The operand that holds ids, and the size of the axis that they index.
struct Lookup {
  ValueId ids = kNone;
  int64_t size = 0;
};

Lookup lookup_of(const Graph& graph, const Node& node) {
  const auto in_table = [&] {
    const auto& axis = node.attributes.get<std::string>("axis");
    return Lookup{node.inputs[1], graph.type(node.inputs[0]).axis(axis).size};
  };
  if (node.op == &kGatherOp || node.op == &kPickOp || node.op == &kCrossEntropyOp)
    return in_table();
  if (node.op == &kOneHotOp) return {node.inputs[0], node.attributes.get<int64_t>("size")};
  return {};
}

void find_lookups(const Graph& graph, ArrayNames names, LookupBounds* bounds) {
  for (const Node& node : graph.nodes()) {
    const Lookup lookup = lookup_of(graph, node);
    if (lookup.ids != kNone && !names[lookup.ids].empty()) {
      const auto [found, is_new] = bounds->try_emplace(names[lookup.ids]);
      if (is_new || lookup.size < found->second.size)
        found->second = {lookup.size,
                         fmt::format("'{}' in {} ({})", node.attributes.get<std::string>("axis"),
                                     node.path, node.site.text())};
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

// "row 1, position 5" of an array ["batch seq"].
std::string place_of(const HostArray& array, size_t at) {
  size_t row_size = 1;
  for (size_t i = 1; i < array.shape.size(); ++i) row_size *= static_cast<size_t>(array.shape[i]);
  const std::string row = fmt::format("row {}", at / row_size);
  return row_size == 1 ? row : fmt::format("{}, position {}", row, at % row_size);
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
      fail("{}: '{}' is {} in {}; expected 0 to {}, which {} has{}", where, name, *bad,
           place_of(array, at), bound.size - 1, bound.where,
           is_ignored ? ". To leave a label out of the loss, set its element of 'weights' to 0"
                      : "");
    }
  }
}

}  // namespace tessera
