// SPDX-License-Identifier: Apache-2.0
// Factors of activations in the maximal update parametrization (layers/widths.h). An export of the
// model needs them too, so they are HParams:
//
// - Tied logits are multiplied by 1/r, in a model r times as wide: the table is an input weight.
// - Rows of a table are not multiplied by more in a wider model (scale_sqrt_depth).
// - Products of queries and keys are divided by the width of heads, not by its root.
#pragma once

#include <cstdint>

#include "tasks/task/single_task.h"

namespace tessera {

// Error, with the value to set, for a factor that is still that of the standard parametrization.
void check_mup(const SingleTask::HParams& task, const std::map<std::string, double>& widths);

// Sets mup_base and these factors for a TransformerLm of this width, whose axes embed, mlp, heads
// and kv_heads are in proportion to those of a base model of `base_dims`. Error if the latter's
// would not be whole.
void use_mup(SingleTask::HParams& task, int64_t model_dims, int64_t base_dims);

}  // namespace tessera
