// SPDX-License-Identifier: Apache-2.0
#include "core/check/op_cases.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"

namespace tessera {
namespace {

// Odd sizes, so that vector loops have tails; and a size of 1.
const std::string kMatrix = "float[\"row=5 column=7\"]";
const std::string kRow = "float[\"column=7\"]";
const std::string kThin = "float[\"row=1 column=3\"]";
const std::string kMask = "bool[\"row=5 column=7\"]";

// Large enough for several threads and many vectors; too large for finite differences.
OpCase large(OpCase row) {
  for (std::string& type : row.inputs) {
    const size_t five = type.find("row=5"), seven = type.find("column=7");
    if (seven != type.npos) type.replace(seven, 8, "column=259");
    if (five != type.npos) type.replace(five, 5, "row=301");
  }
  row.differentiable = false;
  return row;
}

// An op of one operand, on x and on thin operands.
void add_unary(std::vector<OpCase>& rows, const std::string& op, Tensor (*call)(Operand)) {
  for (const std::string& type : {kMatrix, kThin})
    rows.push_back({op, {type}, [call](const Tensors& in) -> Tensors { return {call(in[0])}; }});
}

// An op defined for positive numbers only: on x² + ½.
void add_positive(std::vector<OpCase>& rows, const std::string& op, Tensor (*call)(Operand)) {
  rows.push_back({op, {kMatrix}, [call](const Tensors& in) -> Tensors {
                    return {call(square(in[0]) + 0.5)};
                  }});
}

// An op of two operands: alike, broadcast either way, and with a scalar.
void add_binary(std::vector<OpCase>& rows, const std::string& op,
                Tensor (*call)(Operand, Operand)) {
  const std::vector<std::vector<std::string>> operands = {
      {kMatrix, kMatrix},
      {kMatrix, kRow},
      {"float[\"row=5\"]", kMatrix},
      {kMatrix, "float[\"\"]"},
      {"float[\"row=3\"]", "float[\"column=4\"]"}};
  for (const auto& types : operands)
    rows.push_back(
        {op, types, [call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; }});
}

// Comparisons have no gradient; they are seen through a choice between numbers.
void add_comparison(std::vector<OpCase>& rows, const std::string& op,
                    Tensor (*call)(Operand, Operand)) {
  for (const std::string& type : {kMatrix, std::string("i32[\"row=5 column=7\"]")})
    rows.push_back({.op = op,
                    .inputs = {type, type},
                    .build = [call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; },
                    .differentiable = false});
}

void add_functions(std::vector<OpCase>& rows) {
  add_unary(rows, "neg", neg);
  add_unary(rows, "exp", exp);
  add_positive(rows, "log", log);
  add_positive(rows, "sqrt", sqrt);
  add_positive(rows, "rsqrt", rsqrt);
  add_unary(rows, "square", square);
  add_unary(rows, "abs", abs);
  add_unary(rows, "sign", sign);
  add_unary(rows, "sin", sin);
  add_unary(rows, "cos", cos);
  add_unary(rows, "erf", erf);
  add_unary(rows, "tanh", tanh);
  add_unary(rows, "sigmoid", sigmoid);
  add_unary(rows, "relu", relu);
  add_unary(rows, "softplus", softplus);
  add_unary(rows, "silu", silu);
  add_unary(rows, "gelu", gelu);
  add_unary(rows, "gelu_tanh", gelu_tanh);
  add_unary(rows, "stop_gradient", stop_gradient);
  rows.push_back(
      {"scale", {kMatrix}, [](const Tensors& in) -> Tensors { return {scale(in[0], -1.7)}; }});
  rows.push_back({"cast", {kMatrix}, [](const Tensors& in) -> Tensors {
                    return {cast(cast(in[0] * 2.0, DType::kF32), DType::kBF16)};
                  }});
  rows.push_back({.op = "cast",
                  .inputs = {kMatrix, "i32[\"row=5\"]", "bool[\"row=5\"]"},
                  .build = [](const Tensors& in) -> Tensors {
                    return {cast(in[0] * 3.0, DType::kI32), cast(in[1], DType::kF32),
                            cast(in[2], DType::kF32), cast(in[2], DType::kI32)};
                  },
                  .differentiable = false});
}

void add_pairs(std::vector<OpCase>& rows) {
  add_binary(rows, "add", add);
  add_binary(rows, "sub", sub);
  add_binary(rows, "mul", mul);
  add_binary(rows, "maximum", maximum);
  add_binary(rows, "minimum", minimum);
  rows.push_back({"div", {kMatrix, kRow}, [](const Tensors& in) -> Tensors {
                    return {in[0] / (square(in[1]) + 0.5)};
                  }});
  rows.push_back({"pow", {kMatrix, kRow}, [](const Tensors& in) -> Tensors {
                    return {pow(square(in[0]) + 0.5, in[1])};
                  }});
  rows.push_back({.op = "add",
                  .inputs = {"i32[\"row=5 column=7\"]", "i32[\"column=7\"]"},
                  .build = [](const Tensors& in) -> Tensors { return {in[0] + in[1]}; },
                  .differentiable = false});
}

// What the gradients of the functions above are made of, each alone.
void add_gradient_ops(std::vector<OpCase>& rows) {
  const std::vector<std::pair<std::string, Tensor (*)(Operand, Operand)>> ops = {
      {"tanh_grad", tanh_grad}, {"sigmoid_grad", sigmoid_grad}, {"relu_grad", relu_grad},
      {"silu_grad", silu_grad}, {"gelu_grad", gelu_grad},       {"gelu_tanh_grad", gelu_tanh_grad}};
  for (const auto& [op, call] : ops)
    rows.push_back(
        {.op = op,
         .inputs = {kMatrix, kMatrix},
         .build = [call = call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; },
         .differentiable = false});
}

void add_choices(std::vector<OpCase>& rows) {
  rows.push_back({"where", {kMask, kMatrix, kRow}, [](const Tensors& in) -> Tensors {
                    return {where(in[0], in[1], in[2])};
                  }});
  rows.push_back({"mask", {kMatrix, "bool[\"row=5\"]"}, [](const Tensors& in) -> Tensors {
                    return {mask(in[0], in[1])};
                  }});
  add_comparison(rows, "equal", equal);
  add_comparison(rows, "less", less);
  add_comparison(rows, "less_equal", less_equal);
  rows.push_back({.op = "logical_and",
                  .inputs = {kMask, "bool[\"column=7\"]"},
                  .build = [](const Tensors& in) -> Tensors { return {logical_and(in[0], in[1])}; },
                  .differentiable = false});
  rows.push_back({.op = "logical_or",
                  .inputs = {kMask, "bool[\"column=7\"]"},
                  .build = [](const Tensors& in) -> Tensors { return {logical_or(in[0], in[1])}; },
                  .differentiable = false});
  rows.push_back({.op = "logical_not",
                  .inputs = {kMask},
                  .build = [](const Tensors& in) -> Tensors { return {logical_not(in[0])}; },
                  .differentiable = false});
  rows.push_back({.op = "is_finite",
                  .inputs = {kMatrix},
                  .build = [](const Tensors& in) -> Tensors {
                    // Some are infinite: 1 over 0, where the sign's square less 1 is 0.
                    return {is_finite(in[0] / (in[0] - abs(in[0])))};
                  },
                  .differentiable = false});
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> rows;
  add_functions(rows);
  add_pairs(rows);
  add_gradient_ops(rows);
  add_choices(rows);
  const size_t small = rows.size();
  for (size_t i = 0; i < small; ++i)
    if (rows[i].inputs.front() == kMatrix) rows.push_back(large(rows[i]));
  return rows;
}

}  // namespace tessera
