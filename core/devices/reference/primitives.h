// SPDX-License-Identifier: Apache-2.0
// Primitive ops of the interpreter: one simple loop each. Elementwise ops run their scalar function
// (OpDef::element). Internal to this folder.
#pragma once

#include <span>
#include <vector>

#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"

namespace tessera {

struct ReferenceCall {
  const Node& node;
  std::span<const ReferenceArray* const> inputs;
  const Type& type;  // Type of the result.

  const ReferenceArray& input(size_t i) const { return *inputs[i]; }
  // Returns the global index, along an axis, of the first element of the op's anchor
  // (OpDef::anchor); 0 on one device.
  int64_t origin(size_t axis) const {
    const std::vector<int64_t> none(axis + 1, 0);
    return node.attributes.get_or(key::kOrigin, none)[axis];
  }
};

// Returns the elements of an op's one result.
using ReferenceFunction = std::vector<double> (*)(const ReferenceCall&);

// Returns an op's function; null for composite ops, which run their decompositions.
ReferenceFunction find_reference(const OpDef& op);

}  // namespace tessera
