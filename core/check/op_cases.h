// SPDX-License-Identifier: Apache-2.0
// One row an op (or more, for its variants): how to call it, and on what. Tests walk the rows:
// gradients against finite differences, backends against the reference interpreter, as does runexp
// --mode=selfcheck. A new op adds its row to the table of its family, op_cases_*.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/tensor.h"

namespace tessera {

using Tensors = std::vector<Tensor>;

struct OpCase {
  std::string op;                   // The op that the row is there for; the trace must hold it.
  std::vector<std::string> inputs;  // Types. "float[…]" takes each floating dtype under test.
  std::function<Tensors(const Tensors&)> build;

  bool differentiable = true;  // By the floating inputs, at the sample points.
  // Integers are drawn from [0, ids).
  int ids = 3;
  // Of a backend's results, relative to the largest of a result; scaled up for longer sums.
  double tolerance_f32 = 1e-5;
  double tolerance_bf16 = 2e-2;
};

// What cases are reported by: "elementwise", "einsum", "norm"; gradients go with their ops.
std::string family_of(const OpCase& row);

std::vector<OpCase> elementwise_cases();
std::vector<OpCase> structural_cases();  // Layout, reductions, einsum, gather, generators, loops.
std::vector<OpCase> composite_cases();
std::vector<OpCase> all_op_cases();

// Ops without a row, each with the reason.
std::map<std::string, std::string> ops_without_cases();

// "float[\"a=2\"]" with the floating dtype filled in.
std::string type_with(std::string_view type, std::string_view dtype);

}  // namespace tessera
