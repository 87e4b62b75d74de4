// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights that a run prints at its start, within 100 columns if names allow.
#pragma once

#include <string>

#include "layers/parameter.h"

namespace tessera {

// A line per weight: path, global type, number of elements, initial values. Equal layers share
// their lines, and the weights of a layer are listed below its path:
//
//   lm.softmax.w  f32[vocab=264 embed=128]   33.8k              gaussian 0.02
//   lm.transformer.x_layers[0..3]           393.2k = 4 x 98.3k
//     ffn.gate    f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
//     ffn.up      f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
std::string weight_table(const ParameterTable& table);

}  // namespace tessera
