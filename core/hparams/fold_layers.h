// SPDX-License-Identifier: Apache-2.0
// Folds rows that belong to equal layers, for the table of weights, the listing of a configuration
// and the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A row to fold: layers with equal rows become one row, `x_layers[0..3].ffn.up`. The layers of a
// LayerSequence, `part0` and so on, become `part[0..3]`.
struct PathRow {
  std::string path;  // "lm.transformer.x_layers[3].ffn.up"
  std::string kind;  // Rows are alike if their kinds are equal.
};

struct FoldedRow {
  std::string path;          // "lm.transformer.x_layers[0..3].ffn.up"
  std::vector<size_t> rows;  // Indices of the folded rows.
};

// Elements of a list are folded if their rows agree, in order, in the rest of the path, and at
// least three quarters of them in kind; they need not be adjacent. The rows in which they differ
// come last, `x_layers[0,2].window` beside `x_layers[1,3].window`. Inner lists are folded first.
// Children of one parent come out together, in order of first appearance.
std::vector<FoldedRow> fold_layers(const std::vector<PathRow>& rows);

// Returns the text between the brackets for sorted, distinct indices: "0..3", "0..2,4,6",
// "0,2,..,46", "0..46 except 3,7,..,43"; the shortest form.
std::string index_text(const std::vector<int64_t>& indices);

// Removes indices: "x_layers[3].ffn" -> "x_layers[].ffn", "part3.ffn" -> "part[].ffn".
std::string without_indices(std::string_view path);

}  // namespace tessera
