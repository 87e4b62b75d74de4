// SPDX-License-Identifier: Apache-2.0
// The interpreter's primitive ops: one function an op, in tables by family. Internal to this
// folder.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/backend/reference/array.h"
#include "core/graph/graph.h"
#include "core/ops/collective.h"

namespace tessera {

struct ReferenceCall {
  const Node& node;
  std::span<const ReferenceArray* const> inputs;
  const Type& type;  // Of the result.

  const ReferenceArray& input(size_t i) const { return *inputs[i]; }
  // Of a shard of the op's anchor (core/ops/collective.h), the global index of its first
  // element along an axis; 0 where it is no shard.
  int64_t origin(size_t axis) const {
    const std::vector<int64_t> none(axis + 1, 0);
    return node.attributes.get_or(kOrigin, none)[axis];
  }
};

// A row of a family's table: the values of the op's one result.
struct ReferenceOp {
  std::string_view name;
  std::vector<double> (*run)(const ReferenceCall&);
};

std::span<const ReferenceOp> reference_elementwise();
std::span<const ReferenceOp> reference_sums();      // einsum, reductions, gather and its like.
std::span<const ReferenceOp> reference_movement();  // Layout changes and generators.
std::span<const ReferenceOp> reference_random();

}  // namespace tessera
