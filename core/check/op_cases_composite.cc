// SPDX-License-Identifier: Apache-2.0
// The test cases of ops with a decomposition (op_cases.h): attention, losses, norms, optimizers and
// others, with a row for each variant. Gradients, layouts and kernels of all backends are tested on
// them.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/associative_scan.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/generator.h"
#include "core/ops/grouped_product.h"
#include "core/ops/inverse_root.h"
#include "core/ops/layout.h"
#include "core/ops/linear_recurrence.h"
#include "core/ops/newton_schulz.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/rotary.h"
#include "core/ops/rounding.h"
#include "core/ops/triangular_solve.h"

namespace tessera {
namespace {

const std::string kHidden = "float[\"batch=2 seq=3 embed=6\"]";
const std::string kEmbed = "float[\"embed=6\"]";

void add_norms(std::vector<OpCase>& rows) {
  add_case(rows, kRmsNormOp, {kHidden, kEmbed},
           [](const Tensors& in) { return rms_norm(in[0], in[1], "embed", 1e-6); });
  add_case(rows, kRmsNormOp, {kHidden},
           [](const Tensors& in) { return rms_norm(in[0], {}, "seq", 1e-2); });
  add_case(rows, kLayerNormOp, {kHidden, kEmbed, kEmbed},
           [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], "embed", 1e-5); });
  add_case(rows, kLayerNormOp, {"float[\"seq=5 embed=3\"]", "float[\"embed=3\"]"},
           [](const Tensors& in) { return layer_norm(in[0], in[1], {}, "embed", 1e-1); });
  add_case(rows, kSoftmaxOp, {kHidden}, [](const Tensors& in) -> Tensors {
    return {softmax(in[0], "embed"), softmax(in[0] * 3.0, "seq")};
  });
  add_case(rows, kReduceMaxOp, {kHidden}, [](const Tensors& in) -> Tensors {
    return {logsumexp(in[0], "embed"), logsumexp(in[0] * 3.0, "batch")};
  });
}

void add_sorts(std::vector<OpCase>& rows) {
  add_case(rows, kSortOp, {"i32[\"seq=5 embed=3\"]"}, [](const Tensors& in) {
    return sort(in[0], "seq", SortOrder::kDescending);
  }).differentiable = false;
  add_case(rows, kSortOp, {kHidden}, [](const Tensors& in) -> Tensors {
    return {sort(in[0], "embed"), sort(in[0], "seq", SortOrder::kDescending)};
  });
}

// Adds recurrences over even and odd numbers of positions, and solutions of triangular systems.
void add_recurrences(std::vector<OpCase>& rows) {
  for (const int size : {1, 7, 12}) {
    const std::string type = fmt::format("float[\"batch=2 seq={} embed=3\"]", size);
    add_case(rows, size > 1 ? kConcatOp : kMulOp, {type, type}, [](const Tensors& in) {
      return associative_scan(
          [](const Tensors& x, const Tensors& y) -> Tensors {
            return {x[0] * y[0], y[0] * x[1] + y[1]};
          },
          {in[0] * in[1], in[1]}, "seq");
    });
  }
  for (const int kind : {0, 1, 2, 3}) {
    const auto solve = [kind](const Tensors& in) {
      return triangular_solve(in[0] + 2.0, in[1], "row", "col", {kind / 2 == 1, kind % 2 == 1});
    };
    add_case(rows, kTriangularSolveOp,
             {"float[\"batch=2 row=5 col=5\"]", "float[\"row=5 rhs=3 batch=2 more=2\"]"}, solve);
    add_case(rows, kTriangularSolveOp, {"float[\"col=4 row=4\"]", "float[\"batch=3 row=4\"]"},
             solve);
  }
}

// Linear recurrences of this number of tokens, with each option and some combinations. `log_decay`
// is at most 0; sums of random ids are ids of segments.
void add_linear_recurrences(std::vector<OpCase>& rows, int seq, int key_dim, int value_dim) {
  const std::string key = fmt::format("batch=2 seq={} heads=3 key_dim={}", seq, key_dim);
  const std::string state =
      fmt::format("batch=2 heads=3 key_dim={} value_dim={}", key_dim, value_dim);
  const std::string gate = floats_of(fmt::format("batch=2 seq={} heads=3", seq));
  for (const int options : {0, 1, 2, 5, 7}) {
    const bool delta = options % 2 == 1, segments = options / 2 % 2 == 1, has_state = options >= 4;
    OpCase& row =
        add_case(rows, kLinearRecurrenceOp,
                 {floats_of(key), floats_of(key),
                  floats_of(fmt::format("batch=2 seq={} heads=3 value_dim={}", seq, value_dim)),
                  gate, gate, floats_of(state), fmt::format("i32[\"batch=2 seq={}\"]", seq)},
                 [=](const Tensors& in) -> Tensors {
                   LinearRecurrenceOptions with{.delta = delta};
                   if (segments) with.segment_ids = cumulative_sum(in[6], "seq");
                   if (has_state) with.state = in[5];
                   // Keys of length 1, as the delta rule has them; longer ones may let the state
                   // grow.
                   const Tensor k = rms_norm(in[1], {}, "key_dim", 1e-3) / std::sqrt(key_dim);
                   const LinearRecurrence y =
                       linear_recurrence(in[0], k, in[2], neg(square(in[3])), sigmoid(in[4]), with);
                   if (!has_state) return {y.out};
                   return {y.out, y.state};
                 });
    row.ids = 2;
    row.differentiable = seq < 10;
  }
}

// Returns the cotangents of a composite op's operands from that of its first result; `of_all`: and
// from cotangents of the others.
Tensors called_vjp(const Tensor& output, const Tensor& cotangent, bool of_all = false) {
  Graph& graph = traced_graph();
  const Node node = graph.node(graph.value(output.id()).producer);  // A copy: tracing changes it.
  Tensors inputs, outputs, cotangents;
  for (const ValueId id : node.inputs) inputs.emplace_back(&graph, id);
  for (const ValueId id : node.outputs) outputs.emplace_back(&graph, id);
  for (const Tensor& each : outputs)
    cotangents.push_back(cotangents.empty() ? cotangent : of_all ? each * each + 0.5 : Tensor());
  Tensors gradients;
  for (const Tensor& each : node.op->vjp({node, inputs, outputs, cotangents}))
    if (each.valid()) gradients.push_back(each);
  return gradients;
}

// Makes a case of only the gradient op of a composite op, called as by its vjp.
OpCase gradient_of(const OpCase& forward, const OpDef& gradient) {
  OpCase row = forward;
  row.op = &gradient;
  row.differentiable = false;
  row.build = [build = forward.build](const Tensors& in) -> Tensors {
    const Tensors results = build(in);
    Tensor output = results[0];
    Graph& graph = traced_graph();
    const Node* node = &graph.node(graph.value(output.id()).producer);
    while (node->op->decomposition == nullptr) {  // Skips a transpose after the gradient op.
      output = Tensor(&graph, node->inputs[0]);
      node = &graph.node(graph.value(output.id()).producer);
    }
    return called_vjp(output, output * output + 0.5, results.size() == node->outputs.size());
  };
  return row;
}

// Adds a vocabulary that is sharded (over one device): the whole loss, and only the op of one
// shard.
void add_split_cross_entropies(std::vector<OpCase>& rows,
                               const std::vector<CrossEntropyOptions>& options) {
  const std::string logits = "float[\"batch=2 seq=3 vocab/mdl=7\"]";
  const std::string labels = "i32[\"batch=2 seq=3\"]";
  for (const CrossEntropyOptions& each : options) {
    add_case(rows, kCrossEntropyShardOp, {logits, labels}, [each](const Tensors& in) {
      return cross_entropy(in[0], in[1], "vocab", each).loss;
    }).ids = 7;
    const OpCase alone{
        .op = &kCrossEntropyShardOp,
        .inputs = {"float[\"batch=2 seq=3 vocab=7\"]", labels, "f32[\"batch=2 seq=3\"]"},
        .build =
            [each](const Tensors& in) {
              return cross_entropy_shard(
                  in[0], in[1], in[2] + 1.0, "vocab", each.soft_cap,
                  each.label_smoothing > 0.0 ? ShardTotal::kOfLogits : ShardTotal::kNone);
            },
        .differentiable = false,  // The maximum has no gradient.
        .ids = 9};                // Some ids are in another shard.
    rows.push_back(alone);
    rows.push_back(gradient_of(alone, kCrossEntropyShardGradOp));
  }
}

void add_cross_entropies(std::vector<OpCase>& rows) {
  const std::vector<CrossEntropyOptions> options = {
      {},
      {.label_smoothing = 0.2},
      {.z_loss = 0.1},
      {.soft_cap = 2.0},
      {.label_smoothing = 0.1, .z_loss = 0.05, .soft_cap = 3.0}};
  for (const CrossEntropyOptions& each : options) {
    OpCase row{
        .op = &kCrossEntropyOp,
        .inputs = {"float[\"batch=2 seq=3 vocab=7\"]", "i32[\"batch=2 seq=3\"]"},
        .build =
            [each](const Tensors& in) { return cross_entropy(in[0], in[1], "vocab", each).loss; },
        .ids = 7};
    rows.push_back(row);
    row.build = [each](const Tensors& in) -> Tensors {
      const CrossEntropy result = cross_entropy(in[0], in[1], "vocab", each);
      return {result.loss, result.log_likelihood, result.correct};
    };
    row.differentiable = false;  // Reported values have no gradient.
    rows.push_back(row);
  }
  add_split_cross_entropies(rows, options);
}

// Adds products without finite differences, since products of rounded numbers have steps, and
// without other ops, since a backend's rounding of their results moves the steps.
void add_fp8_products(std::vector<OpCase>& rows) {
  const std::string x = "float[\"batch=3 seq=5 embed=16\"]", w = "float[\"embed=16 mlp=8\"]";
  add_case(rows, kAbsoluteMaximumOp, {x}, [](const Tensors& in) {
    return absolute_maximum(in[0]);
  }).differentiable = false;
  const auto product = [](const Tensors& in) { return fp8_product(in[0], in[1], over("embed")); };
  add_case(rows, kFp8ProductOp, {x, w, "float[\"batch=3 seq=5 mlp=8\"]"},
           [product](const Tensors& in) { return called_vjp(product(in), in[2]); })
      .differentiable = false;
  add_case(rows, kFp8ProductOp, {x, w}, product).differentiable = false;
  for (OpCase& row : rows)
    if (row.op == &kFp8ProductOp) row.tolerance_f32_of_kernel = kFp8KernelTolerance;
}

const std::string kByChoice = "batch=2 seq=3 top_k=2", kShared = "batch=2 seq=3";

// Integers from 0 to `drawn` - 1 as ids of 4 experts: expert 3 has no rows (3), expert 0 has all
// (1), expert 2 has most and one id is -1 (9), some ids are too large (6).
constexpr std::array kDrawnIds = {3, 1, 9, 6, 4};
Tensor chosen_experts(const Tensor& integers, int drawn) {
  if (drawn != 9) return integers;
  return minimum(integers - constant(1.0, DType::kI32), constant(2.0, DType::kI32));
}

void add_grouped_products(std::vector<OpCase>& rows) {
  const std::string ids = "i32[\"" + kByChoice + "\"]";
  for (const int drawn : kDrawnIds)
    for (const std::string matrix : {"embed=5 mlp=7", "mlp=7 embed=5"})
      for (const std::string& x : {kShared, kByChoice})
        add_case(rows, kGroupedProductOp,
                 {floats_of(x + " embed=5"), floats_of("experts=4 " + matrix), ids},
                 [drawn](const Tensors& in) {
                   return grouped_product(in[0], in[1], chosen_experts(in[2], drawn), "experts",
                                          over("embed"));
                 })
            .ids = drawn;
  const std::vector<std::pair<std::string, std::string>> axes = {
      {kShared, kByChoice}, {kByChoice, kShared}, {"top_k=2", "top_k=2"}, {kByChoice, kByChoice}};
  for (const int drawn : kDrawnIds)
    for (const auto& [a, b] : axes)
      add_case(rows, kGroupedOuterProductOp,
               {floats_of(a + " embed=5"), floats_of(b + " mlp=7"), ids},
               [drawn](const Tensors& in) {
                 return grouped_outer_product(in[0], in[1], chosen_experts(in[2], drawn),
                                              {"experts", 4, {}});
               })
          .ids = drawn;
}

void add_rotaries(std::vector<OpCase>& rows) {
  for (const RotaryStyle style : {RotaryStyle::kHalf, RotaryStyle::kInterleaved}) {
    const std::string x = "float[\"batch=2 seq=5 heads=3 head_dim=4\"]";
    for (const std::string positions : {"i32[\"seq=5\"]", "i32[\"batch=2 seq=5\"]"})
      add_case(rows, kRotaryOp, {x, positions}, [style](const Tensors& in) {
        return rotary(in[0], in[1], "head_dim", 100.0, 0.5, style);
      }).ids = 40;
    // One pair keeps its frequency, the other is interpolated: by its turns, and by its number.
    for (const RotaryStretch& stretch :
         {RotaryStretch{.divisors = {1.0, 3.0}}, RotaryStretch{.factor = 8.0, .length = 60.0},
          RotaryStretch{
              .factor = 8.0, .low = -1.5, .high = -0.0, .length = 0.0, .index_step = -1.0}})
      add_case(rows, kRotaryOp, {x, "i32[\"seq=5\"]"}, [=](const Tensors& in) {
        return rotary(in[0], in[1], "head_dim", 100.0, 0.5, style, stretch);
      }).ids = 40;
  }
}

void add_random(std::vector<OpCase>& rows) {
  rows.push_back({.op = &kRandomUniformOp,
                  .inputs = {"i32[\"\"]"},
                  .build = [](const Tensors& in) -> Tensors {
                    const PathScope path("x_layers[2].noise");
                    return {random_uniform({{"batch", 3, {}}, {"embed", 7, {}}}, in[0]),
                            random_uniform({{"batch", 3, {}}, {"embed", 7, {}}}, in[0])};
                  },
                  .differentiable = false,
                  .tolerance_f32 = 0.0});
  add_case(rows, kDropoutOp, {kHidden, "i32[\"\"]"}, [](const Tensors& in) -> Tensors {
    const PathScope path("dropout");
    return {dropout(in[0], 0.4, in[1])};
  });
}

// Adds moments in bf16, rounded to nearest and stochastically.
void add_rounded_moments(std::vector<OpCase>& rows) {
  const std::string slot = "f32[\"row=3 column=5\"]", narrow = "bf16[\"row=3 column=5\"]";
  const std::string scalar = "f32[\"\"]";
  for (const auto& [first, second] :
       {std::pair(narrow, slot), std::pair(slot, narrow), std::pair(narrow, narrow)})
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      OpCase& row = add_case(rows, kAdamUpdateOp, {slot, first, second, slot, scalar, scalar},
                             [rounding](const Tensors& in) -> Tensors {
                               const PathScope path("x_layers[2].weight");
                               const Tensor count = square(in[5]) + 2.0, second = square(in[2]);
                               const AdamState next =
                                   adam_update({in[0], in[1], second}, in[3], in[4], count, in[5],
                                               less_equal(count, count), {.rounding = rounding});
                               return {next.parameter, next.first_moment, next.second_moment};
                             });
      row.differentiable = false;
      row.tolerance_f32 = 1e-2;  // Roundings to bf16 may differ where arithmetic does.
    }
  OpCase& row = add_case(rows, kStochasticRoundOp, {"f32[\"row=37 column=5\"]", scalar},
                         [](const Tensors& in) -> Tensors {
                           const PathScope path("x_layers[2].weight");
                           const Tensor count = square(in[1]) * 1e3;
                           return {stochastic_round(in[0], count, {}),
                                   stochastic_round(in[0], count, {.half = NoiseHalf::kHigh})};
                         });
  row.differentiable = false;
  row.tolerance_f32 = 0.0;
}

// Adds wide, tall and stacked matrices, and those of several axes in any order.
void add_newton_schulz(std::vector<OpCase>& rows) {
  const std::vector<std::pair<std::string, MatrixAxes>> matrices = {
      {"a=3 b=5", {{"a"}, {"b"}}},
      {"a=5 b=3", {{"b"}, {"a"}}},
      {"layer=2 a=3 part=2 b=2 c=3", {{"b", "c"}, {"a"}}}};
  for (const auto& [type, axes] : matrices) {
    OpCase& row =
        add_case(rows, kNewtonSchulzOp, {fmt::format("float[\"{}\"]", type)},
                 [axes](const Tensors& in) { return newton_schulz(in[0], axes, {.steps = 3}); });
    row.differentiable = false;
    row.tolerance_bf16 = 5e-2;  // Each step has three roundings to bf16, which the next enlarges.
  }
}

// Adds roots of matrices of any rank, and of several matrices.
void add_inverse_root(std::vector<OpCase>& rows) {
  for (const std::string type : {"layer=2 a=3 b=4", "a=4 b=2"})
    for (const int64_t root : {2, 4}) {
      OpCase& row = add_case(
          rows, kInverseRootOp, {fmt::format("float[\"{}\"]", type)}, [root](const Tensors& in) {
            const Tensor gram = einsum(in[0], rename(in[0], "a", "c"), over("b"));
            return inverse_root(gram, "a", "c", {.root = root, .damping = 0.1});
          });
      row.differentiable = false;
    }
}

void add_optimizers(std::vector<OpCase>& rows) {
  const std::vector<AdamOptions> options = {
      {.weight_decay = 0.1},
      {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .epsilon_root = 1e-4},
      {.bias_corrected_decay = true}};
  for (const AdamOptions& each : options) {
    for (const bool apply : {true, false}) {
      const std::string slot = "f32[\"row=3 column=5\"]", scalar = "f32[\"\"]";
      add_case(rows, kAdamUpdateOp, {slot, slot, slot, slot, scalar, scalar},
               [each, apply](const Tensors& in) -> Tensors {
                 // Second moments and counts are never negative.
                 const Tensor count = square(in[5]) + 2.0;
                 const Tensor yes = less_equal(count, count);
                 const AdamState next =
                     adam_update({in[0], in[1], square(in[2])}, in[3], in[4], count, in[5],
                                 apply ? yes : logical_not(yes), each);
                 return {next.parameter, next.first_moment, next.second_moment};
               })
          .differentiable = false;
    }
  }
  add_rounded_moments(rows);
  add_newton_schulz(rows);
  add_inverse_root(rows);
  add_case(rows, kSquaredNormOp, {"float[\"a=3 b=4 c=5\"]", "f32[\"a=9\"]", "float[\"\"]"},
           [](const Tensors& in) -> Tensors {
             return {squared_norm({in[0], in[1], in[2]})};
           });
}

// Adds sizes of several blocks of each kernel, in rows and sequence.
void add_large_composites(std::vector<OpCase>& rows) {
  const auto add = [&](const OpDef& op, std::vector<std::string> types,
                       std::function<CaseResults(const Tensors&)> build) {
    OpCase& row = add_case(rows, op, std::move(types), std::move(build));
    row.differentiable = false;
    row.tolerance_f32 = 3e-5;
  };
  const std::string x = "float[\"batch=3 seq=29 embed=131\"]", embed = "float[\"embed=131\"]";
  // Several blocks of the sums over rows.
  const std::string rows_of_norms = "float[\"batch=5 seq=61 embed=131\"]";
  add(kRmsNormOp, {rows_of_norms, embed},
      [](const Tensors& in) { return rms_norm(in[0], in[1], "embed", 1e-6); });
  add(kLayerNormOp, {rows_of_norms, embed, embed},
      [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], "embed", 1e-5); });
  add(kSoftmaxOp, {x}, [](const Tensors& in) { return softmax(in[0], "embed"); });
  add(kCrossEntropyOp, {"float[\"batch=3 seq=29 vocab=517\"]", "i32[\"batch=3 seq=29\"]"},
      [](const Tensors& in) {
        return cross_entropy(in[0], in[1], "vocab", {.label_smoothing = 0.1, .z_loss = 0.01}).loss;
      });
}

void add_composite_gradients(std::vector<OpCase>& rows) {
  const std::vector<std::pair<const OpDef*, const OpDef*>> gradients = {
      {&kRmsNormOp, &kRmsNormGradOp},     {&kLayerNormOp, &kLayerNormGradOp},
      {&kSoftmaxOp, &kSoftmaxGradOp},     {&kCrossEntropyOp, &kCrossEntropyGradOp},
      {&kAttentionOp, &kAttentionGradOp}, {&kLinearRecurrenceOp, &kLinearRecurrenceGradOp}};
  const size_t forward_rows = rows.size();
  for (size_t i = 0; i < forward_rows; ++i) {
    const OpCase forward = rows[i];
    for (const auto& [op, gradient] : gradients)
      if (forward.op == op) rows.push_back(gradient_of(forward, *gradient));
  }
}

// Rows of all experts but one, in small and, unless `small`, in large tiles.
void add_grouped_tiles(std::vector<OpCase>& rows, bool small) {
  std::vector<std::array<int, 3>> sizes = {{300, 70, 136}, {2048, 32, 1152}, {100, 520, 1152}};
  if (small) sizes = {{40, 24, 33}};
  for (const auto& [count, embed, mlp] : sizes) {
    const std::string x = floats_of(fmt::format("row={} embed={}", count, embed)),
                      ids = fmt::format("i32[\"row={}\"]", count);
    for (const std::string& matrix :
         {fmt::format("embed={} mlp={}", embed, mlp), fmt::format("mlp={} embed={}", mlp, embed)})
      add_case(rows, kGroupedProductOp, {x, floats_of("experts=4 " + matrix), ids},
               [](const Tensors& in) {
                 return grouped_product(in[0], in[1], in[2], "experts", over("embed"));
               });
    add_case(rows, kGroupedOuterProductOp,
             {x, floats_of(fmt::format("row={} mlp={}", count, mlp)), ids}, [](const Tensors& in) {
               return grouped_outer_product(in[0], in[1], in[2], {"experts", 4, {}});
             });
  }
}

}  // namespace

std::vector<OpCase> tiled_cases(bool small) {
  std::vector<OpCase> rows;
  add_attention_blocks(rows, small);
  add_composite_gradients(rows);
  add_grouped_tiles(rows, small);
  return rows;
}

std::vector<OpCase> composite_cases() {
  std::vector<OpCase> rows;
  add_norms(rows);
  add_sorts(rows);
  add_recurrences(rows);
  add_linear_recurrences(rows, 5, 3, 4);
  add_linear_recurrences(rows, 1, 1, 1);
  add_linear_recurrences(rows, 130, 20, 12);
  add_cross_entropies(rows);
  add_fp8_products(rows);
  add_grouped_products(rows);
  add_attentions(rows);
  add_rotaries(rows);
  add_random(rows);
  add_optimizers(rows);
  add_large_composites(rows);
  add_composite_gradients(rows);
  return rows;
}

}  // namespace tessera
