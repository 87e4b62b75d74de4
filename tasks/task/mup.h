// SPDX-License-Identifier: Apache-2.0
// Factors of activations in the maximal update parametrization (layers/parameter.h). An export of
// the model needs them too, so they are HParams:
//
// - Tied logits are multiplied by 1/r, in a model r times as wide: the table is an input weight.
// - Rows of a table are not multiplied by more in a wider model (scale_sqrt_depth).
// - Products of queries and keys are divided by the width of heads, not by its root.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layers/models/base_model.h"

namespace tessera {

// Error, with the value to set, for a factor that is still that of the standard parametrization.
// `widths` are the relative_widths of `base`.
void check_mup(const Template<BaseModel>& model, const std::map<std::string, int64_t>& base,
               const std::map<std::string, double>& widths);

// Sets these factors in a TransformerLm of this width, whose axes embed, mlp, heads and kv_heads
// are in proportion to those of a base model of `base_dims`, and returns the latter's: mup_base.
// Error if they would not be whole. Does nothing if base_dims is 0.
std::map<std::string, int64_t> use_mup(Template<BaseModel>& model, int64_t model_dims,
                                       int64_t base_dims);

}  // namespace tessera
