// SPDX-License-Identifier: Apache-2.0
// The primitive ops of the interpreter, one function per op, in tables by family. Internal to this
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
  // The global index of the first element of the shard of the op's anchor along an axis
  // (core/ops/collective.h); 0 without shards.
  int64_t origin(size_t axis) const {
    const std::vector<int64_t> none(axis + 1, 0);
    return node.attributes.get_or(kOrigin, none)[axis];
  }
};

// A row of a table: computes the values of the only result of the op.
struct ReferenceOp {
  std::string_view name;
  std::vector<double> (*run)(const ReferenceCall&);
};

std::span<const ReferenceOp> reference_elementwise();
std::span<const ReferenceOp> reference_sums();      // einsum, reductions, gather and scatter.
std::span<const ReferenceOp> reference_movement();  // Layout changes and generators.
std::span<const ReferenceOp> reference_random();

}  // namespace tessera
