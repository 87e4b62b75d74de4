// SPDX-License-Identifier: Apache-2.0
// The casts of mixed precision: weights as they are used, and gradients as they cross devices. The
// op itself is called as in elementwise.h.
#pragma once

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// A weight in the dtype it is used in. Its gradient crosses devices in `reduce`, whether where the
// weight was gathered or where it was cast.
Tensor cast_weight(Operand x, DType dtype, DType reduce);

// reshard(cotangent, target), the cotangent of a reshard of `x` to `resharded`, after which it is
// named: in x's reduce dtype if it is a weight's cast. What is rounded back after that is not
// rounded if a cast to the reduce dtype follows.
Tensor reshard_gradient(const Tensor& cotangent, const Type& target, const Tensor& x,
                        const Tensor& resharded);

extern const OpDef kCastOp;

}  // namespace tessera
