// SPDX-License-Identifier: Apache-2.0
#include <map>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

const std::string kCube = "float[\"a=3 b=4 c=5\"]";

void add_layout(std::vector<OpCase>& rows) {
  rows.push_back({&kRenameOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {rename(in[0], "b", "d") * 2.0};
                  }});
  for (const std::string order : {"c a b", "b a c", "a c b"})
    rows.push_back({&kTransposeOp, {kCube}, [order](const Tensors& in) -> Tensors {
                      return {transpose(in[0], order)};
                    }});
  rows.push_back({&kSplitAxisOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {split_axis(in[0], "b", {"outer", 2, {}}, {"inner", 2, {}}) * 2.0};
                  }});
  rows.push_back({&kMergeAxesOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {merge_axes(in[0], "b", "c", "d") * 2.0};
                  }});
  rows.push_back(
      {&kSliceOp, {kCube}, [](const Tensors& in) -> Tensors {
         return {slice(in[0], "a", 1, 3), slice(in[0], "b", 1, 3), slice(in[0], "c", 4, 5)};
       }});
  rows.push_back({&kPadOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {pad(in[0], "a", 1, 0), pad(in[0], "b", 0, 3), pad(in[0], "c", 1, 2)};
                  }});
  rows.push_back({&kConcatOp, {kCube, "float[\"a=3 b=1 c=5\"]"}, [](const Tensors& in) -> Tensors {
                    return {concat({in[0], in[1], in[0]}, "b")};
                  }});
  rows.push_back(
      {&kConcatOp, {"float[\"a=3 c=2\"]", "float[\"a=3 c=3\"]"}, [](const Tensors& in) -> Tensors {
         return {concat({in[0], in[1]}, "c")};
       }});
  rows.push_back({&kShiftRightOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {shift_right(in[0], "b", 0.0), shift_right(in[0], "c", 1.5)};
                  }});
  rows.push_back({&kReshardOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {reshard(in[0] * 2.0, "a/data b c")};
                  }});
  rows.push_back({&kSaveForBackwardOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {save_for_backward(tanh(in[0]), "h") * in[0]};
                  }});
}

void add_sums(std::vector<OpCase>& rows) {
  for (const std::string axes : {"a", "b", "c", "a c", "a b c"})
    rows.push_back({&kReduceSumOp, {kCube}, [axes](const Tensors& in) -> Tensors {
                      return {reduce_sum(in[0], axes)};
                    }});
  rows.push_back({&kReduceSumOp, {"float[\"a=1 b=1\"]"}, [](const Tensors& in) -> Tensors {
                    return {reduce_sum(in[0], "a")};
                  }});
  for (const std::string axes : {"a", "c", "a b c"})
    rows.push_back(
        {.op = &kReduceMaxOp,
         .inputs = {kCube},
         .build = [axes](const Tensors& in) -> Tensors { return {reduce_max(in[0], axes)}; },
         .differentiable = false});
  rows.push_back({&kBroadcastOp, {"float[\"b=4\"]"}, [](const Tensors& in) -> Tensors {
                    return {broadcast(in[0], {{"a", 3, {}}, {"c", 5, {}}}, "a b c")};
                  }});
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
    rows.push_back({&kEinsumOp, types, [equation = equation](const Tensors& in) -> Tensors {
                      return {einsum(equation, in[0], in[1])};
                    }});
}

// Sizes that libraries and blocking handle differently from small ones.
void add_large(std::vector<OpCase>& rows) {
  const auto add = [&](const OpDef& op, std::vector<std::string> types,
                       std::function<Tensors(const Tensors&)> build) {
    rows.push_back({.op = &op,
                    .inputs = std::move(types),
                    .build = build,
                    .differentiable = false,
                    .tolerance_f32 = 1e-4});  // Long sums whose terms mostly cancel.
  };
  for (const std::string equation : {"m k, k n -> m n", "m k, n k -> m n", "k m, k n -> m n"}) {
    const std::string a = equation.substr(0, 3), b = equation.substr(5, 3);
    const auto sized = [](const std::string& names) {
      const std::map<char, int> sizes = {{'m', 131}, {'k', 67}, {'n', 197}};
      return fmt::format("float[\"{}={} {}={}\"]", names[0], sizes.at(names[0]), names[2],
                         sizes.at(names[2]));
    };
    add(kEinsumOp, {sized(a), sized(b)},
        [equation](const Tensors& in) -> Tensors { return {einsum(equation, in[0], in[1])}; });
  }
  add(kEinsumOp, {"float[\"b=3 s=40 h=4 d=16\"]", "float[\"b=3 t=40 h=4 d=16\"]"},
      [](const Tensors& in) -> Tensors {
        return {einsum("b s h d, b t h d -> b h s t", in[0], in[1])};
      });
  for (const std::string axes : {"a", "b", "c", "a c", "a b c"})
    add(kReduceSumOp, {"float[\"a=37 b=41 c=43\"]"},
        [axes](const Tensors& in) -> Tensors { return {reduce_sum(in[0], axes)}; });
  for (const std::string order : {"c a b", "b a c", "a c b", "c b a"})
    add(kTransposeOp, {"float[\"a=37 b=41 c=43\"]"},
        [order](const Tensors& in) -> Tensors { return {transpose(in[0], order)}; });
}

void add_selections(std::vector<OpCase>& rows) {
  rows.push_back(
      {.op = &kGatherOp,
       .inputs = {"float[\"vocab=5 embed=3\"]", "i32[\"batch=2 seq=4\"]"},
       .build = [](const Tensors& in) -> Tensors { return {gather(in[0], in[1], "vocab")}; },
       .ids = 5});
  rows.push_back({.op = &kScatterAddOp,
                  .inputs = {"float[\"batch=2 seq=4 embed=3\"]", "i32[\"batch=2 seq=4\"]"},
                  .build = [](const Tensors& in) -> Tensors {
                    return {scatter_add(in[0], in[1], {"vocab", 6, {}})};
                  }});
  rows.push_back(
      {.op = &kPickOp,
       .inputs = {"float[\"batch=2 seq=4 vocab=5\"]", "i32[\"batch=2 seq=4\"]"},
       .build = [](const Tensors& in) -> Tensors { return {pick(in[0], in[1], "vocab")}; },
       .ids = 5});
}

void add_generators(std::vector<OpCase>& rows) {
  rows.push_back({&kConstantOp, {kCube}, [](const Tensors& in) -> Tensors {
                    return {in[0] * constant(2.5, in[0].dtype(), {{"b", 4, {}}}),
                            constant(-1.0, DType::kF32, {{"d", 2, {}}})};
                  }});
  rows.push_back({.op = &kIotaOp,
                  .inputs = {},
                  .build = [](const Tensors&) -> Tensors {
                    return {iota({"a", 11, {}})};
                  },
                  .differentiable = false});
  rows.push_back({.op = &kCausalMaskOp,
                  .inputs = {},
                  .build = [](const Tensors&) -> Tensors {
                    return {causal_mask({"query", 3, {}}, {"key", 5, {}})};
                  },
                  .differentiable = false});
  rows.push_back({.op = &kOneHotOp,
                  .inputs = {"i32[\"a=5\"]"},
                  .build = [](const Tensors& in) -> Tensors {
                    return {one_hot(in[0], {"class", 3, {}}, DType::kF32),
                            one_hot(in[0], {"class", 2, {}}, DType::kBF16)};
                  },
                  .differentiable = false});
}

// x = tanh(x·w + b), with a different w in each iteration; every x is collected.
void add_loops(std::vector<OpCase>& rows) {
  rows.push_back(
      {&kRepeatOp,
       {"float[\"batch=2 embed=3\"]", "float[\"layers=4 embed=3 mlp=3\"]", "float[\"embed=3\"]"},
       [](const Tensors& in) -> Tensors {
         const RepeatResult result =
             repeat("layers", 4, {in[0]}, {in[1]},
                    [&](Tensor, Tensors carries, Tensors slices) -> RepeatBody {
                      const Tensor y =
                          rename(einsum(carries[0], slices[0], over("embed")), "mlp", "embed");
                      const Tensor x = tanh(y + in[2]);
                      return {{x}, {x * carries[0]}};
                    });
         return {result.carries[0], result.stacked[0]};
       }});
}

}  // namespace

std::vector<OpCase> structural_cases() {
  std::vector<OpCase> rows;
  add_layout(rows);
  add_sums(rows);
  add_einsums(rows);
  add_large(rows);
  add_selections(rows);
  add_generators(rows);
  add_loops(rows);
  return rows;
}

}  // namespace tessera
