// SPDX-License-Identifier: Apache-2.0
// Contraction by axis name, accumulated in f32 for every dtype.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// The axes to contract over: over("embed"), over("heads head_dim").
struct Over {
  std::vector<std::string> axes;
};
Over over(std::string_view axes);

// Sums products over the named axes; other shared names are batch axes. The result has a's kept
// axes in order, then b's own. A contraction over a split axis gives a partial sum.
Tensor einsum(Operand a, Operand b, const Over& contracted);
// Contracts in the result's axis order: einsum("batch seq embed, embed mlp -> batch seq mlp", x,
// w). Names must match the operands' axes; unknown or missing ones are errors.
// An equation may write layouts, "batch/data mlp/mdl, mlp/mdl embed -> batch/data embed +
// sum(mdl)": all of them are then checked.
Tensor einsum(std::string_view equation, Operand a, Operand b);

namespace key {
// The axes summed over, which both operands have; all others, in the order of the result.
inline constexpr AttributeName<std::vector<std::string>> kContracted{"contracted"},
    kOutput{"output"};
}  // namespace key
extern const Op kEinsumOp;
// Return the attributes of einsum(a, b, contracted), and of the einsum that computes the cotangent
// of `operand` from a result's cotangent `dy` and the other operand.
Attributes einsum_attributes(const Tensor& a, const Tensor& b, const Over& contracted);
Attributes einsum_gradient_attributes(const Tensor& dy, const Tensor& operand);

}  // namespace tessera
