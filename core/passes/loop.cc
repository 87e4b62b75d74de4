// SPDX-License-Identifier: Apache-2.0
#include "core/passes/loop.h"

#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {

bool is_repeat(const Node& node) { return node.op->op_class == OpClass::kLoop; }

Loop::Loop(const Node& node)
    : node_(&node),
      count_(node.attributes.get<int64_t>("count")),
      carries_(node.attributes.get<int64_t>("carries")),
      slices_(node.attributes.get<int64_t>("stacked")),
      constants_(node.attributes.get<int64_t>("constants")),
      reversed_(node.attributes.get_or<int64_t>("reversed", 0) != 0),
      axis_(node.attributes.get<std::string>("axis")) {
  CHECK(is_repeat(node));
}

int64_t Loop::results() const { return static_cast<int64_t>(node_->outputs.size()) - carries_; }

Type stacked_type(const Type& slice, const std::string& axis, int64_t count) {
  Type type = slice;
  type.axes.insert(type.axes.begin(), Axis{.name = axis, .size = count, .split = {}});
  return type;
}

Type slice_type(const Type& stacked) {
  Type type = stacked;
  type.axes.erase(type.axes.begin());
  return type;
}

Attributes loop_attributes(const std::string& axis, int64_t count, int64_t carries, int64_t slices,
                           int64_t constants, bool reversed) {
  return {{"axis", axis},           {"count", count},
          {"carries", carries},     {"stacked", slices},
          {"constants", constants}, {"reversed", static_cast<int64_t>(reversed ? 1 : 0)}};
}

}  // namespace tessera
