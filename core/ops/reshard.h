// SPDX-License-Identifier: Apache-2.0
// The only op that communicates. On global arrays it is the identity; its gradient is another.
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// To a layout in words, "batch/data seq embed/mdl", axes in x's order; or + sum(mdl).
Tensor reshard(Operand x, std::string_view layout);
Tensor reshard(Operand x, const Type& type);
// To what the experiment's activation rules say; `role` selects scoped rules ("residual").
Tensor place(Operand x, std::string_view role = "");

// Marks x as worth saving for the backward pass under this name; a remat policy decides.
Tensor save_for_backward(Operand x, std::string_view name);

extern const OpDef kReshardOp, kSaveForBackwardOp;

}  // namespace tessera
