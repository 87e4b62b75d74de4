// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights that a run prints at its start, within 100 columns if names allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/parameter.h"

namespace tessera {

// A row to fold: layers with equal rows become one row, `x_layers[0..3].ffn.up`.
struct PathRow {
  std::string path;  // "lm.transformer.x_layers[3].ffn.up"
  std::string kind;  // Rows are alike if their kinds are equal.
};

struct FoldedRow {
  std::string path;          // "lm.transformer.x_layers[0..3].ffn.up"
  std::vector<size_t> rows;  // The indices of the given rows that it stands for.
};

// Elements of a list are folded if all of their rows agree, in order, in the rest of the path and
// in kind; they need not be adjacent. Inner lists are folded first. Children of one parent come out
// together, in order of first appearance.
std::vector<FoldedRow> fold_layers(const std::vector<PathRow>& rows);

// The text between the brackets for sorted, distinct indices: "0..3", "0..2,4,6", "0,2,..,46",
// "0..46 except 3,7,..,43"; the shortest form.
std::string index_text(const std::vector<int64_t>& indices);

// A line per weight: path, global type, number of elements, initial values. Equal layers share
// their lines, and the weights of a layer are listed below its path:
//
//   lm.softmax.w  f32[vocab=264 embed=128]   33.8k              gaussian 0.02
//   lm.transformer.x_layers[0..3]           393.2k = 4 x 98.3k
//     ffn.gate    f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
//     ffn.up      f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.02
std::string weight_table(const ParameterTable& table);

}  // namespace tessera
