// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights that a run prints at its start, in 100 columns where names allow.
// For people; programs read plan.json and the checkpoint's index.
#pragma once

#include <string>

#include "layers/parameter.h"

namespace tessera {

// A line for each weight: path, global type, how many elements, initial values. Layers with the
// same weights share their lines (fold_layers.h), and the weights of a layer stand below its path:
//
//   lm.softmax.w  f32[vocab=264 embed=128]   33.8k              gaussian 0.02
//   lm.transformer.x_layers[0..3]           393.2k = 4 x 98.3k
//     ffn.gate    f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
//     ffn.up      f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
std::string weight_table(const ParameterTable& table);

}  // namespace tessera
