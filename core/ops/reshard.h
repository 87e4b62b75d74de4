// SPDX-License-Identifier: Apache-2.0
// Conversions that keep the values: cast changes the dtype, reshard the layout on the mesh.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// x rounded to a dtype. A partial sum would be rounded before it is summed: an Error unless asked
// for with kThrough.
enum class CastPartial { kRefuse, kThrough };
Tensor cast(Operand x, DType dtype, CastPartial partial = CastPartial::kRefuse);

// A weight in the dtype of its use. Its gradient is summed across devices in `reduce`, both where
// the weight was gathered and where it was cast.
Tensor cast_weight(Operand x, DType dtype, DType reduce);

// x in another layout: "batch/data seq embed/mdl", axes in x's order, or "… + sum(mdl)". The only
// op of layers that communicates; on global arrays it is the identity.
Tensor reshard(Operand x, std::string_view layout);
Tensor reshard(Operand x, const Type& type);
// x in the layout of the experiment's activation rules; `role` selects scoped rules ("residual").
Tensor place(Operand x, std::string_view role = "");

// Offers x to the remat policy, under this name, to be saved for the backward pass.
Tensor save_for_backward(Operand x, std::string_view name);

extern const Op kCastOp, kReshardOp, kSaveForBackwardOp;

}  // namespace tessera
