// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Shapes = std::vector<std::string>;

// Odd sizes, so that vector loops have remainders; and an axis of size 1.
const std::string kMatrix = "[\"row=5 column=7\"]";
const std::string kColumns = "[\"column=7\"]";
const std::string kThin = "[\"row=1 column=3\"]";

// The shapes on which an op of this many operands is tested: equal ones, and operands broadcast
// to the other's axes, to both operands' axes, or from a scalar.
std::vector<Shapes> shapes_for(size_t operands) {
  switch (operands) {
    case 1:
      return {{kMatrix}, {kThin}};
    case 2:
      return {{kMatrix, kMatrix},
              {kMatrix, kColumns},
              {"[\"row=5\"]", kMatrix},
              {kMatrix, "[\"\"]"},
              {"[\"row=3\"]", "[\"column=4\"]"}};
    case 3:
      return {{kMatrix, kMatrix, kColumns}, {"[\"row=5\"]", kMatrix, "[\"\"]"}};
  }
  CHECK(false, "elementwise ops have one to three operands, got {}", operands);
}

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

// The op on operands in its domain: x² + ½ where they must be positive.
Tensors call_on_domains(const OpDef& op, const Tensors& inputs) {
  Tensors operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool positive = op.element.operands[i] == Domain::kPositive;
    operands.push_back(positive ? square(inputs[i]) + 0.5 : inputs[i]);
  }
  return {trace_op(op, operands, {}, SourceSite::current())};
}

// The cases of an op that is a scalar function.
void add_function(std::vector<OpCase>& rows, const OpDef& op) {
  size_t operands = 0;
  while (operands < op.element.operands.size() && op.element.operands[operands] != Domain::kAbsent)
    ++operands;
  for (const Shapes& shapes : shapes_for(operands)) {
    OpCase row{.op = &op,
               .inputs = shapes,
               .build = [&op](const Tensors& in) { return call_on_domains(op, in); },
               .differentiable = op.vjp != nullptr};
    for (size_t i = 0; i < operands; ++i)
      row.inputs[i].insert(0, op.element.operands[i] == Domain::kBool ? "bool" : "float");
    rows.push_back(row);
    if (shapes.front() == kMatrix) rows.push_back(large(row));
  }
}

// Ops that also take integers, and ops with attributes.
void add_integers(std::vector<OpCase>& rows) {
  const auto add = [&](const OpDef& op, Tensor (*call)(Operand, Operand)) {
    rows.push_back({.op = &op,
                    .inputs = {"i32[\"row=5 column=7\"]", "i32[\"column=7\"]"},
                    .build = [call](const Tensors& in) -> Tensors { return {call(in[0], in[1])}; },
                    .differentiable = false});
  };
  add(kAddOp, tessera::add);
  add(kEqualOp, equal);
  add(kLessOp, less);
  add(kLessEqualOp, less_equal);
}

void add_others(std::vector<OpCase>& rows) {
  const std::string matrix = "float" + kMatrix;
  rows.push_back(
      {&kScaleOp, {matrix}, [](const Tensors& in) -> Tensors { return {scale(in[0], -1.7)}; }});
  rows.push_back(large(rows.back()));
  rows.push_back({&kCastOp, {matrix}, [](const Tensors& in) -> Tensors {
                    return {cast(cast(in[0] * 2.0, DType::kF32), DType::kBF16)};
                  }});
  rows.push_back(large(rows.back()));
  rows.push_back({.op = &kCastOp,
                  .inputs = {matrix, "i32[\"row=5\"]", "bool[\"row=5\"]"},
                  .build = [](const Tensors& in) -> Tensors {
                    return {cast(in[0] * 3.0, DType::kI32), cast(in[1], DType::kF32),
                            cast(in[2], DType::kF32), cast(in[2], DType::kI32)};
                  },
                  .differentiable = false});
  rows.push_back({.op = &kIsFiniteOp,
                  .inputs = {matrix},
                  .build = [](const Tensors& in) -> Tensors {
                    // Infinite where x is positive: x - |x| is 0 there.
                    return {is_finite(in[0] / (in[0] - abs(in[0])))};
                  },
                  .differentiable = false});
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> rows;
  for (const OpDef* op : all_ops())
    if (op->element.apply != nullptr) add_function(rows, *op);
  add_integers(rows);
  add_others(rows);
  return rows;
}

}  // namespace tessera
