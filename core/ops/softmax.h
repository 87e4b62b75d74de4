// SPDX-License-Identifier: Apache-2.0
// Softmax over one axis, computed in f32.
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

Tensor softmax(Operand x, std::string_view axis);

extern const OpDef kSoftmaxGradOp, kSoftmaxOp;

}  // namespace tessera
