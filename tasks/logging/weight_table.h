// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights that a run prints at its start, in 100 columns where names allow.
// For people; programs read plan.json and the checkpoint's index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/parameter.h"

namespace tessera {

// Shortens tables that have a row for each weight of each layer: layers with the same rows become
// one, `x_layers[0..3].ffn.up`. Only text is folded; no weight or value changes.

struct PathRow {
  std::string path;  // "lm.transformer.x_layers[3].ffn.up"
  std::string kind;  // Rows are alike if their kinds are equal: type, layout, initial values.
};

struct FoldedRow {
  std::string path;          // "lm.transformer.x_layers[0..3].ffn.up"
  std::vector<size_t> rows;  // What it stands for, as indices of the given rows.
};

// Elements of a list are folded if all of their rows agree, in order: the rest of the path and the
// kind. Other elements of the list may lie between them. Lists within lists are folded first.
// Children of one parent come out together, in the order in which they first appear.
std::vector<FoldedRow> fold_layers(const std::vector<PathRow>& rows);

// The inside of the brackets for sorted, distinct indices: "0..3", "0..2,4,6", "0,2,..,46",
// "0..46 except 3,7,..,43"; the shortest of these forms.
std::string index_text(const std::vector<int64_t>& indices);

// A line for each weight: path, global type, how many elements, initial values. Layers with the
// same weights share their lines (fold_layers.h), and the weights of a layer stand below its path:
//
//   lm.softmax.w  f32[vocab=264 embed=128]   33.8k              gaussian 0.02
//   lm.transformer.x_layers[0..3]           393.2k = 4 x 98.3k
//     ffn.gate    f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
//     ffn.up      f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
std::string weight_table(const ParameterTable& table);

}  // namespace tessera
