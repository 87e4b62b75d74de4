// SPDX-License-Identifier: Apache-2.0
// Generators: constants, positions and masks. The splits of the given axes are the result's layout.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// Makes a tensor with one value everywhere; with no axes, a scalar.
Tensor constant(double value, DType dtype, std::vector<Axis> axes = {},
                SourceSite site = SourceSite::current());
// 0, 1, … along `axis` (i32).
Tensor iota(Axis axis, SourceSite site = SourceSite::current());
// bool["query key"]: key position <= query position (both i32).
Tensor causal_mask(Axis query, Axis key, SourceSite site = SourceSite::current());
// 1 where `ids` equals the position on the new axis, else 0; the axis comes last.
Tensor one_hot(Operand ids, Axis axis, DType dtype);

extern const Op kConstantOp, kIotaOp, kCausalMaskOp, kOneHotOp;

}  // namespace tessera
