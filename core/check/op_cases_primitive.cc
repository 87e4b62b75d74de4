// SPDX-License-Identifier: Apache-2.0
// The test cases of primitive ops (op_cases.h). Those of elementwise ops follow from their scalar
// functions, for each shape and dtype; the others are listed.
#include <map>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/leaves.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

const std::string kCube = "float[\"a=3 b=4 c=5\"]";

void add_layout(std::vector<OpCase>& rows) {
  add_case(rows, kRenameOp, {kCube},
           [](const Tensors& in) { return rename(in[0], "b", "d") * 2.0; });
  for (const std::string order : {"c a b", "b a c", "a c b"})
    add_case(rows, kTransposeOp, {kCube},
             [order](const Tensors& in) { return transpose(in[0], order); });
  add_case(rows, kSplitAxisOp, {kCube}, [](const Tensors& in) {
    return split_axis(in[0], "b", {"outer", 2, {}}, {"inner", 2, {}}) * 2.0;
  });
  add_case(rows, kMergeAxesOp, {kCube},
           [](const Tensors& in) { return merge_axes(in[0], "b", "c", "d") * 2.0; });
  add_case(rows, kSliceOp, {kCube}, [](const Tensors& in) -> Tensors {
    return {slice(in[0], "a", 1, 3), slice(in[0], "b", 1, 3), slice(in[0], "c", 4, 5)};
  });
  add_case(rows, kPadOp, {kCube}, [](const Tensors& in) -> Tensors {
    return {pad(in[0], "a", 1, 0), pad(in[0], "b", 0, 3), pad(in[0], "c", 1, 2)};
  });
  add_case(rows, kConcatOp, {kCube, "float[\"a=3 b=1 c=5\"]"}, [](const Tensors& in) {
    return concat({in[0], in[1], in[0]}, "b");
  });
  add_case(rows, kConcatOp, {"float[\"a=3 c=2\"]", "float[\"a=3 c=3\"]"}, [](const Tensors& in) {
    return concat({in[0], in[1]}, "c");
  });
  add_case(rows, kShiftRightOp, {kCube}, [](const Tensors& in) -> Tensors {
    return {shift_right(in[0], "b", 0.0), shift_right(in[0], "c", 1.5)};
  });
  add_case(rows, kReshardOp, {kCube},
           [](const Tensors& in) { return reshard(in[0] * 2.0, "a/data b c"); });
  add_case(rows, kSaveForBackwardOp, {kCube},
           [](const Tensors& in) { return save_for_backward(tanh(in[0]), "h") * in[0]; });
}

void add_sums(std::vector<OpCase>& rows) {
  for (const std::string axes : {"a", "b", "c", "a c", "a b c"})
    add_case(rows, kReduceSumOp, {kCube},
             [axes](const Tensors& in) { return reduce_sum(in[0], axes); });
  add_case(rows, kReduceSumOp, {"float[\"a=1 b=1\"]"},
           [](const Tensors& in) { return reduce_sum(in[0], "a"); });
  for (const std::string axes : {"a", "c", "a b c"})
    add_case(rows, kReduceMaxOp, {kCube}, [axes](const Tensors& in) {
      return reduce_max(in[0], axes);
    }).differentiable = false;
  add_case(rows, kBroadcastOp, {"float[\"b=4\"]"}, [](const Tensors& in) {
    return broadcast(in[0], {{"a", 3, {}}, {"c", 5, {}}}, "a b c");
  });
}

// On one device, where each axis of leaves that is split has size 1.
void add_leaf_cases(std::vector<OpCase>& rows) {
  add_case(rows, kOwnLeafOp, {"float[\"leaf=1 a=3\"]"},
           [](const Tensors& in) -> Tensors { return {own_leaf(in[0])}; });
  for (const char* const type : {"float[\"a=3 b=4\"]", "float[\"layers=2 a=3\"]", "float[\"\"]"})
    add_case(rows, kAllLeavesOp, {type},
             [](const Tensors& in) -> Tensors { return {all_leaves(in[0], {})}; });
  add_case(rows, kAddLeavesOp, {"float[\"a=3 b=4\"]", "float[\"leaf=5 a=3 b=4\"]"},
           [](const Tensors& in) -> Tensors { return {add_leaves(in[0], in[1])}; });
  for (OpCase& row : std::span(rows).last(5)) row.differentiable = false;
}

void add_einsums(std::vector<OpCase>& rows) {
  // Matrix products: each operand transposed, batched, an outer and an inner product, sizes of 1.
  const std::vector<std::pair<std::string, std::vector<std::string>>> equations = {
      {"m k, k n -> m n", {"float[\"m=5 k=7\"]", "float[\"k=7 n=3\"]"}},
      {"m k, n k -> m n", {"float[\"m=5 k=7\"]", "float[\"n=3 k=7\"]"}},
      {"k m, k n -> m n", {"float[\"k=7 m=5\"]", "float[\"k=7 n=3\"]"}},
      {"m k, k n -> n m", {"float[\"m=5 k=7\"]", "float[\"k=7 n=3\"]"}},
      {"b m k, b k n -> b m n", {"float[\"b=2 m=3 k=5\"]", "float[\"b=2 k=5 n=4\"]"}},
      {"b s h d, b t h d -> b h s t", {"float[\"b=2 s=3 h=2 d=4\"]", "float[\"b=2 t=5 h=2 d=4\"]"}},
      {"b s h d, h d e -> b s e", {"float[\"b=2 s=3 h=2 d=4\"]", "float[\"h=2 d=4 e=6\"]"}},
      {"b s e, e h d -> b s h d", {"float[\"b=2 s=3 e=6\"]", "float[\"e=6 h=2 d=4\"]"}},
      {"m, n -> m n", {"float[\"m=5\"]", "float[\"n=3\"]"}},
      {"m k, m k -> m", {"float[\"m=5 k=7\"]", "float[\"m=5 k=7\"]"}},
      {"k, k -> ", {"float[\"k=7\"]", "float[\"k=7\"]"}},
      {"m k, k n -> m n", {"float[\"m=1 k=1\"]", "float[\"k=1 n=1\"]"}},
  };
  for (const auto& [equation, types] : equations)
    add_case(rows, kEinsumOp, types,
             [equation = equation](const Tensors& in) { return einsum(equation, in[0], in[1]); });
}

// Adds sizes that libraries and blocking handle differently from small ones.
void add_large(std::vector<OpCase>& rows) {
  const auto add = [&](const OpDef& op, std::vector<std::string> types,
                       std::function<CaseResults(const Tensors&)> build) {
    OpCase& row = add_case(rows, op, std::move(types), std::move(build));
    row.differentiable = false;
    row.tolerance_f32 = 1e-4;  // Long sums whose terms mostly cancel.
  };
  for (const std::string equation : {"m k, k n -> m n", "m k, n k -> m n", "k m, k n -> m n"}) {
    const std::string a = equation.substr(0, 3), b = equation.substr(5, 3);
    const auto sized = [](const std::string& names) {
      const std::map<char, int> sizes = {{'m', 131}, {'k', 67}, {'n', 197}};
      return fmt::format("float[\"{}={} {}={}\"]", names[0], sizes.at(names[0]), names[2],
                         sizes.at(names[2]));
    };
    add(kEinsumOp, {sized(a), sized(b)},
        [equation](const Tensors& in) { return einsum(equation, in[0], in[1]); });
  }
  add(kEinsumOp, {"float[\"b=3 s=40 h=4 d=16\"]", "float[\"b=3 t=40 h=4 d=16\"]"},
      [](const Tensors& in) { return einsum("b s h d, b t h d -> b h s t", in[0], in[1]); });
  for (const std::string axes : {"a", "b", "c", "a c", "a b c"})
    add(kReduceSumOp, {"float[\"a=37 b=41 c=43\"]"},
        [axes](const Tensors& in) { return reduce_sum(in[0], axes); });
  for (const std::string order : {"c a b", "b a c", "a c b", "c b a"})
    add(kTransposeOp, {"float[\"a=37 b=41 c=43\"]"},
        [order](const Tensors& in) { return transpose(in[0], order); });
}

void add_orders(std::vector<OpCase>& rows) {
  for (const std::string axis : {"a", "b", "c"}) {
    for (const std::string& type : {kCube, std::string("i32[\"a=3 b=4 c=5\"]")}) {
      const bool floating = type == kCube;
      add_case(rows, kArgsortOp, {type}, [=](const Tensors& in) -> Tensors {
        return {argsort(in[0], axis), argsort(in[0], axis, SortOrder::kDescending)};
      }).differentiable = false;
      add_case(rows, kCumulativeSumOp, {type}, [=](const Tensors& in) -> Tensors {
        return {cumulative_sum(in[0], axis), cumulative_sum(in[0], axis, {.exclusive = true}),
                cumulative_sum(in[0], axis, {.reverse = true}),
                cumulative_sum(in[0], axis, {.exclusive = true, .reverse = true})};
      }).differentiable = floating;
      add_case(rows, kTopKOp, {type}, [=](const Tensors& in) {
        return top_k(in[0], axis, {axis, 3, {}}).values;
      }).differentiable = floating;
      add_case(rows, kTopKOp, {type}, [=](const Tensors& in) -> Tensors {
        return {top_k(in[0], axis, {"top", 2, {}}).indices, argmax(in[0], axis)};
      }).differentiable = false;
    }
  }
  // Large enough for several threads, with equal elements among the integers.
  for (const std::string type :
       {"float[\"row=9 column=601 n=3\"]", "i32[\"row=9 column=601 n=3\"]"}) {
    OpCase& order = add_case(rows, kArgsortOp, {type}, [=](const Tensors& in) -> Tensors {
      return {argsort(in[0], "column"), top_k(in[0], "column", {"top", 70, {}}).indices,
              argmax(in[0], "column")};
    });
    order.differentiable = false, order.ids = 50;
    OpCase& sum = add_case(rows, kCumulativeSumOp, {type},
                           [](const Tensors& in) { return cumulative_sum(in[0], "column"); });
    sum.differentiable = false, sum.tolerance_f32 = 1e-4;
  }
}

void add_selections(std::vector<OpCase>& rows) {
  add_case(rows, kGatherOp, {"float[\"vocab=5 embed=3\"]", "i32[\"batch=2 seq=4\"]"},
           [](const Tensors& in) { return gather(in[0], in[1], "vocab"); })
      .ids = 5;
  add_case(rows, kScatterAddOp, {"float[\"batch=2 seq=4 embed=3\"]", "i32[\"batch=2 seq=4\"]"},
           [](const Tensors& in) {
             return scatter_add(in[0], in[1], {"vocab", 6, {}});
           });
  // Rows of each example, with ids outside the axis.
  add_case(rows, kGatherOp, {"float[\"batch=3 seq=4 embed=2\"]", "i32[\"batch=3 slots=5\"]"},
           [](const Tensors& in) { return gather(in[0], in[1], "seq"); })
      .ids = 6;
  add_case(rows, kScatterAddOp, {"float[\"batch=3 slots=5 embed=2\"]", "i32[\"batch=3 slots=5\"]"},
           [](const Tensors& in) {
             return scatter_add(in[0], in[1], {"seq", 4, {}}, 1);
           })
      .ids = 6;
  add_case(rows, kPickOp, {"float[\"batch=2 seq=4 vocab=5\"]", "i32[\"batch=2 seq=4\"]"},
           [](const Tensors& in) { return pick(in[0], in[1], "vocab"); })
      .ids = 5;
  // Several ids for each row, some outside the axis; an axis of the same name.
  add_case(rows, kPickOp, {"float[\"batch=2 vocab=4 embed=3\"]", "i32[\"batch=2 k=5 embed=3\"]"},
           [](const Tensors& in) { return pick(in[0], in[1], "vocab"); })
      .ids = 6;
  add_case(rows, kPickOp, {"float[\"batch=2 vocab=4\"]", "i32[\"batch=2 vocab=3\"]"},
           [](const Tensors& in) { return pick(in[0], in[1], "vocab"); })
      .ids = 4;
  add_case(rows, kScatterAlongOp,
           {"float[\"batch=2 k=5 embed=3\"]", "i32[\"batch=2 k=5 embed=3\"]"},
           [](const Tensors& in) {
             return scatter_along(in[0], in[1], "k", {"vocab", 4, {}});
           })
      .ids = 6;
}

void add_generators(std::vector<OpCase>& rows) {
  add_case(rows, kConstantOp, {kCube}, [](const Tensors& in) -> Tensors {
    return {in[0] * constant(2.5, in[0].dtype(), {{"b", 4, {}}}),
            constant(-1.0, DType::kF32, {{"d", 2, {}}})};
  });
  add_case(rows, kIotaOp, {}, [](const Tensors&) {
    return iota({"a", 11, {}});
  }).differentiable = false;
  add_case(rows, kCausalMaskOp, {}, [](const Tensors&) {
    return causal_mask({"query", 3, {}}, {"key", 5, {}});
  }).differentiable = false;
  add_case(rows, kOneHotOp, {"i32[\"a=5\"]"}, [](const Tensors& in) -> Tensors {
    return {one_hot(in[0], {"class", 3, {}}, DType::kF32),
            one_hot(in[0], {"class", 2, {}}, DType::kBF16)};
  }).differentiable = false;
}

// Adds x = tanh(x·w + b), with a different w in each iteration; every x is collected.
void add_loops(std::vector<OpCase>& rows) {
  add_case(
      rows, kRepeatOp,
      {"float[\"batch=2 embed=3\"]", "float[\"layers=4 embed=3 mlp=3\"]", "float[\"embed=3\"]"},
      [](const Tensors& in) -> Tensors {
        const RepeatResult result = repeat(
            "layers", 4, {in[0]}, {in[1]},
            [&](Tensor, Tensors carries, Tensors slices) -> RepeatBody {
              const Tensor y = rename(einsum(carries[0], slices[0], over("embed")), "mlp", "embed");
              const Tensor x = tanh(y + in[2]);
              return {{x}, {x * carries[0]}};
            });
        return {result.carries[0], result.stacked[0]};
      });
}

using Shapes = std::vector<std::string>;

// Odd sizes, so that vector loops have remainders; and an axis of size 1.
const std::string kMatrix = "[\"row=5 column=7\"]";
const std::string kColumns = "[\"column=7\"]";
const std::string kThin = "[\"row=1 column=3\"]";

// Returns the shapes on which an op of this many operands is tested: equal ones, and operands
// broadcast to the other's axes, to both operands' axes, or from a scalar.
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

// Enlarges a case for several threads and many vectors; too large for finite differences.
OpCase large(OpCase row) {
  for (std::string& type : row.inputs) {
    const size_t five = type.find("row=5"), seven = type.find("column=7");
    if (seven != type.npos) type.replace(seven, 8, "column=259");
    if (five != type.npos) type.replace(five, 5, "row=301");
  }
  row.differentiable = false;
  return row;
}

// Calls the op on operands in its domain: x² + ½ where they must be positive. Rounding to 8 bits
// takes |x| as its largest element: bf16 does not round it, so its scale is the same in each dtype.
Tensors call_on_domains(const OpDef& op, const Tensors& inputs) {
  Tensors operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool positive = op.element.operands[i] == Domain::kPositive;
    const bool jumps = &op == &kRoundE4M3Op || &op == &kRoundE5M2Op;
    operands.push_back(!positive ? inputs[i] : jumps ? abs(inputs[i]) : square(inputs[i]) + 0.5);
  }
  return {trace_op(op, operands, {}, SourceSite::current())};
}

// Adds the cases of an op that is a scalar function.
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

// Adds ops that also take integers, and ops with attributes.
void add_integers(std::vector<OpCase>& rows) {
  const auto add = [&](const OpDef& op, Tensor (*call)(Operand, Operand)) {
    add_case(rows, op, {"i32[\"row=5 column=7\"]", "i32[\"column=7\"]"}, [call](const Tensors& in) {
      return call(in[0], in[1]);
    }).differentiable = false;
  };
  add(kAddOp, tessera::add);
  add(kEqualOp, equal);
  add(kLessOp, less);
  add(kLessEqualOp, less_equal);
}

void add_others(std::vector<OpCase>& rows) {
  const std::string matrix = "float" + kMatrix;
  add_case(rows, kScaleOp, {matrix}, [](const Tensors& in) { return scale(in[0], -1.7); });
  rows.push_back(large(rows.back()));
  add_case(rows, kCastOp, {matrix},
           [](const Tensors& in) { return cast(cast(in[0] * 2.0, DType::kF32), DType::kBF16); });
  rows.push_back(large(rows.back()));
  add_case(rows, kCastOp, {matrix, "i32[\"row=5\"]", "bool[\"row=5\"]"},
           [](const Tensors& in) -> Tensors {
             return {cast(in[0] * 3.0, DType::kI32), cast(in[1], DType::kF32),
                     cast(in[2], DType::kF32), cast(in[2], DType::kI32)};
           })
      .differentiable = false;
  add_case(rows, kIsFiniteOp, {matrix}, [](const Tensors& in) -> Tensors {
    // Infinite where x is positive: x - |x| is 0 there.
    return {is_finite(in[0] / (in[0] - abs(in[0])))};
  }).differentiable = false;
}

}  // namespace

std::vector<OpCase> primitive_cases() {
  std::vector<OpCase> rows;
  for (const OpDef* op : all_ops())
    if (op->element.apply != nullptr) add_function(rows, *op);
  add_integers(rows);
  add_others(rows);
  add_layout(rows);
  add_sums(rows);
  add_leaf_cases(rows);
  add_einsums(rows);
  add_large(rows);
  add_selections(rows);
  add_orders(rows);
  add_generators(rows);
  add_loops(rows);
  return rows;
}

}  // namespace tessera
