// SPDX-License-Identifier: Apache-2.0
// Type rules of elementwise ops, one for each way of meeting a pending sum, and the rows of their
// tables.
#pragma once

#include <vector>

#include "core/graph/op.h"

namespace tessera {

using Types = std::vector<Type>;

// One operand, through which a pending sum passes.
Types infer_linear(const InferContext& context);
// Any number of operands, none partial; the `_floating` form takes floating dtypes only.
Types infer_nonlinear(const InferContext& context);
Types infer_nonlinear_floating(const InferContext& context);
// (saved, dy): linear in dy alone. Of the gradients of nonlinear ops.
Types infer_gradient(const InferContext& context);

// A row of a table of elementwise ops.
constexpr OpDef elementwise(std::string_view name, decltype(OpDef::infer) infer,
                            decltype(OpDef::vjp) vjp = nullptr,
                            decltype(OpDef::decomposition) decomposition = nullptr) {
  return {.name = name,
          .op_class = OpClass::kElementwise,
          .infer = infer,
          .vjp = vjp,
          .decomposition = decomposition};
}

// The same, marked as a linear view (see OpDef).
constexpr OpDef linear_view(OpDef op) {
  op.linear_view = true;
  return op;
}

}  // namespace tessera
