// SPDX-License-Identifier: Apache-2.0
// Primitive ops of the interpreter, in one table per family. Elementwise ops that have a scalar
// function (OpDef::element) need no row. Internal to this folder.
#pragma once

#include <span>
#include <vector>

#include "core/backend/reference/array.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"

namespace tessera {

struct ReferenceCall {
  const Node& node;
  std::span<const ReferenceArray* const> inputs;
  const Type& type;  // Of the result.

  const ReferenceArray& input(size_t i) const { return *inputs[i]; }
  // The global index, along an axis, of the first element of the op's anchor (OpDef::anchor); 0 on
  // one device.
  int64_t origin(size_t axis) const {
    const std::vector<int64_t> none(axis + 1, 0);
    return node.attributes.get_or(kOrigin, none)[axis];
  }
};

// A row of a table; `run` returns the elements of the op's one result.
struct ReferenceOp {
  const OpDef* op;
  std::vector<double> (*run)(const ReferenceCall&);
};

// An op with a scalar function.
std::vector<double> run_elementwise(const ReferenceCall& call);

std::span<const ReferenceOp> reference_elementwise();    // Those with attributes.
std::span<const ReferenceOp> reference_sums();           // einsum, reductions, gather, pick.
std::span<const ReferenceOp> reference_data_movement();  // Layout changes and generators.

}  // namespace tessera
