// SPDX-License-Identifier: Apache-2.0
// What the maximal update parametrization (layers/widths.h) asks of a model's own factors: those
// that an export of the model needs, and which are therefore HParams.
//
// - Tied logits are multiplied by 1/r, where the embedding's width is r times the base model's: the
//   table starts and learns as an input.
// - Rows of a table are not multiplied by more in a wider model (scale_sqrt_depth).
// - Products of queries and keys are divided by the width of heads, if that differs, not its root.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layers/models/base_model.h"
#include "tasks/task/single_task.h"

namespace tessera {

// Error, with the value to set, for a factor that is still that of the standard parametrization.
// `ratios` are relative_widths() of `base`.
void check_mup(const Template<BaseModel>& model, const std::map<std::string, int64_t>& base,
               const std::map<std::string, double>& ratios);

// Sets mup_base and these factors for a TransformerLm of this width whose settings are those of one
// of `base_dims`; of the axes embed, mlp, heads and kv_heads, in proportion. Nothing if base_dims
// is 0. Error if the base would have no whole sizes.
void use_mup(SingleTask::HParams& task, int64_t model_dims, int64_t base_dims);

// `size` of the base model at a width of `model_dims`; itself if base_dims is 0. Error, naming the
// knob, unless it is whole.
int64_t at_width(std::string_view knob, int64_t size, int64_t model_dims, int64_t base_dims);

}  // namespace tessera
