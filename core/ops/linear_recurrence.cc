// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear_recurrence.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/triangular_solve.h"

namespace tessera {
namespace {

using Operands = RecurrenceOperands;

constexpr AttributeName<bool> kDelta{"delta"}, kSegments{"segments"}, kState{"state"},
    kFinal{"final"};
constexpr std::string_view kStateNames = "batch heads key_dim value_dim";

// ["batch heads key_dim value_dim"] for these queries and values.
Type state_type(const Type& q, const Type& v) {
  return make_type(wide_dtype(q.dtype), {q.axes[0], q.axes[2], q.axes[3], v.axes[3]});
}

// Checks the operands of the op, and returns the type of its state.
Type check_recurrence(const InferContext& context, const Operands& at) {
  refuse_partial(context);
  check_axis_names(context, Operands::kQuery, "batch seq heads key_dim");
  check_axis_names(context, Operands::kValue, "batch seq heads value_dim");
  check_floating_operand(context, Operands::kQuery);
  check_agreement(context, Operands::kQuery, Operands::kValue);
  const Type &q = context.inputs[Operands::kQuery], &v = context.inputs[Operands::kValue];
  check_same_axes(context, Operands::kKey, q.axes);
  for (const size_t i : {Operands::kKey, Operands::kValue})
    check_dtypes_agree(context, Operands::kQuery, i);
  unsplit_axis_of(context, Operands::kQuery, "seq");
  unsplit_axis_of(context, Operands::kQuery, "key_dim");
  unsplit_axis_of(context, Operands::kValue, "value_dim");
  const Type state = state_type(q, v);
  for (const size_t i : {Operands::kLogDecay, Operands::kBeta}) {
    check_same_axes(context, i, {q.axes[0], q.axes[1], q.axes[2]});
    check_dtype(context, i, state.dtype);
  }
  if (at.has_segments) {
    check_dtype(context, at.segments, DType::kI32);
    check_same_axes(context, at.segments, {q.axes[0], q.axes[1]});
  }
  if (at.has_state) {
    check_same_axes(context, at.state, state.axes);
    check_dtype(context, at.state, state.dtype);
  }
  return state;
}

Types infer_recurrence(const InferContext& context) {
  const Type state = check_recurrence(context, Operands(context.attributes));
  return {context.inputs[Operands::kValue], state};
}

Types infer_recurrence_grad(const InferContext& context) {
  const Operands at(context.attributes);
  const Type state = check_recurrence(context, at);
  check_same_axes(context, at.out_cotangent, context.inputs[Operands::kValue].axes);
  if (at.has_final) check_same_axes(context, at.final_cotangent, state.axes);
  Types types(context.inputs.begin(), context.inputs.begin() + Operands::kBeta + 1);
  if (at.has_state) types.push_back(state);
  return types;
}

// The tokens of a chunk. Axes: batch, heads, step, and those of one token. `other` is another step.
struct Chunk {
  Tensor query, key, value, beta;
  Tensor decay;     // ["batch heads step other"]: from a step `other` to `step`; 0 if it is later.
  Tensor entering;  // ["batch heads step"]: from before the chunk to `step`.
};

Tensor other_step(const Tensor& x) { return rename(x, "step", "other"); }
Tensor other_as_step(const Tensor& x) { return rename(x, "other", "step"); }
Tensor last_step(const Tensor& x) {
  const int64_t size = x.size("step");
  return unbind(slice(x, "step", size - 1, size), "step")[0];
}

// The largest divisor of a sequence that a chunk may have, so that chunks are equal.
int64_t chunk_size(int64_t seq) {
  int64_t size = std::min(seq, kRecurrenceChunk);
  while (seq % size != 0) --size;
  return size;
}

// x["batch seq …"] as ["chunks batch heads step …"]; without heads if x has none.
Tensor chunked(const Tensor& x) {
  const int64_t size = chunk_size(x.size("seq"));
  const Tensor split = split_axis(x, "seq", {.name = "chunks", .size = x.size("seq") / size},
                                  {.name = "step", .size = size});
  std::string order = x.has("heads") ? "chunks batch heads step" : "chunks batch step";
  if (x.type().axes.size() > 3) order += " " + x.type().axes[3].name;
  return transpose(split, order);
}

// The inverse for ["chunks batch heads step …"], in this dtype.
Tensor whole(const Tensor& x, DType dtype) {
  std::string order = "batch chunks step heads";
  if (x.type().axes.size() > 4) order += " " + x.type().axes[4].name;
  return as_dtype(merge_axes(transpose(x, order), "chunks", "step", "seq"), dtype);
}

// All chunks of the operands, in the order in which Chunk's constructor reads their slices.
Tensors chunks_of(const Operands& at, std::span<const Tensor> inputs) {
  Tensors all;
  for (size_t i = 0; i <= Operands::kBeta; ++i) all.push_back(chunked(widened(inputs[i])));
  if (!at.has_segments) return all;
  // The id of each token, and whether its segment is that of the token before its chunk.
  const Tensor& ids = inputs[at.segments];
  const int64_t seq = ids.size("seq");
  Tensors before = {slice(ids, "seq", 0, 1)};
  if (seq > 1) before.push_back(slice(ids, "seq", 0, seq - 1));
  all.push_back(chunked(ids));
  all.push_back(chunked(concat(before, "seq")));
  return all;
}

Chunk chunk_of(const Tensors& slices) {
  const Tensor sums = cumulative_sum(slices[Operands::kLogDecay], "step");
  const Axis& step = sums.type().axis("step");
  Tensor allowed = causal_mask(step, {"other", step.size, {}});
  Tensor entering = exp(sums);
  if (slices.size() > Operands::kBeta + 1) {
    const Tensor &ids = slices[Operands::kBeta + 1], &before = slices[Operands::kBeta + 2];
    allowed = logical_and(equal(ids, other_step(ids)), allowed);
    const Tensor first = unbind(slice(before, "step", 0, 1), "step")[0];
    entering = mask(entering, equal(ids, first));
  }
  // The exponent is 0 where it would be positive.
  const Tensor decay = mask(exp(mask(sums - other_step(sums), allowed)), allowed);
  return {slices[Operands::kQuery],
          slices[Operands::kKey],
          slices[Operands::kValue],
          slices[Operands::kBeta],
          decay,
          entering};
}

// What a chunk computes with S from before it. With M the decayed products of keys with earlier
// ones, u = beta·(v - decay·S^T k - M u): the values that are added to S.
struct ChunkValues {
  Tensor products;  // M["batch heads step other"], and 0 for no earlier step.
  Tensor scores;    // Decayed products of queries with keys, those of one step included.
  Tensor added;     // u["batch heads step value_dim"]
};

Tensor earlier_only(const Tensor& x) {
  return mask(x, less(iota(x.type().axis("other")), iota(x.type().axis("step"))));
}

ChunkValues values_of(const Chunk& c, const Tensor& state, bool delta) {
  ChunkValues values;
  values.scores = einsum(c.query, other_step(c.key), over("key_dim")) * c.decay;
  if (!delta) {
    values.added = c.value * c.beta;
    return values;
  }
  values.products = earlier_only(einsum(c.key, other_step(c.key), over("key_dim")) * c.decay);
  const Tensor known = c.value - einsum(c.key, state, over("key_dim")) * c.entering;
  values.added = other_as_step(triangular_solve(values.products * c.beta, known * c.beta, "step",
                                                "other", {.unit_diagonal = true}));
  return values;
}

Tensor next_state(const Chunk& c, const Tensor& state, const Tensor& added) {
  const Tensor keys = other_step(c.key) * last_step(c.decay);
  return state * last_step(c.entering) + einsum(keys, other_step(added), over("other"));
}

Tensor zero_state(std::span<const Tensor> inputs) {
  return zeros(state_type(inputs[Operands::kQuery].type(), inputs[Operands::kValue].type()));
}
Tensor first_state(const Operands& at, std::span<const Tensor> inputs) {
  return at.has_state ? inputs[at.state] : zero_state(inputs);
}

// Loops over chunks with the state; `result` makes what is stacked, from the state before a chunk.
RepeatResult over_chunks(const Operands& at, std::span<const Tensor> inputs,
                         const std::function<Tensor(const Chunk&, const Tensor& state,
                                                    const ChunkValues& values)>& result) {
  const Tensors chunks = chunks_of(at, inputs);
  return repeat(
      "chunks", chunks[0].size("chunks"), {first_state(at, inputs)}, chunks,
      [&](const Tensor&, const Tensors& carries, const Tensors& slices) -> RepeatBody {
        const Chunk chunk = chunk_of(slices);
        const ChunkValues values = values_of(chunk, carries[0], at.delta);
        return {{next_state(chunk, carries[0], values.added)}, {result(chunk, carries[0], values)}};
      });
}

Tensors decompose_recurrence(const Node& node, std::span<const Tensor> inputs) {
  const RepeatResult loop =
      over_chunks(Operands(node.attributes), inputs,
                  [](const Chunk& c, const Tensor& state, const ChunkValues& values) {
                    return einsum(c.query, state, over("key_dim")) * c.entering +
                           einsum(values.scores, other_step(values.added), over("other"));
                  });
  return {whole(loop.stacked[0], inputs[Operands::kValue].dtype()), loop.carries[0]};
}

// The cotangents of a chunk: of its tokens, and of the state before it.
struct ChunkCotangents {
  Tensors tokens;  // Query, key, value, logarithm of the decay, beta.
  Tensor state;
};

// The cotangents of log_decay, from those of what its sums scale: decay between steps (`between`),
// into the chunk (`into`), to its end from each step (`to_end`) and from before it (`whole_chunk`).
Tensor log_decay_cotangent(const Chunk& c, const Tensor& between, const Tensor& into,
                           const Tensor& to_end, const Tensor& whole_chunk) {
  const Tensor pairs = between * c.decay;
  const Tensor kept = to_end * other_as_step(last_step(c.decay));
  const Tensor at_end = whole_chunk * last_step(c.entering) + reduce_sum(kept, "step");
  const Axis& step = c.beta.type().axis("step");
  const Tensor is_last =
      equal(iota(step), constant(static_cast<double>(step.size - 1), DType::kI32));
  const Tensor sums = reduce_sum(pairs, "other") - other_as_step(reduce_sum(pairs, "step")) +
                      into * c.entering - kept +
                      mask(broadcast(at_end, {step}, "batch heads step"), is_last);
  return cumulative_sum(sums, "step", {.reverse = true});
}

// Cotangents to which the delta rule adds terms.
struct ChunkSums {
  Tensor value;    // The value, and what beta multiplies.
  Tensor by_beta;  // What beta multiplies, itself.
  Tensor added;    // The product of both.
  Tensor key;
  Tensor state;    // The state before the chunk.
  Tensor between;  // Chunk::decay.
  Tensor into;     // Chunk::entering.
};

// Beta multiplies z = v - decay·S^T k - M u. With y the cotangent of z, that of u is du - M^T y,
// so y = beta·(du - M^T y): a triangular system, too.
void add_delta_rule(const Chunk& c, const ChunkValues& values, const Tensor& state,
                    ChunkSums* sums) {
  const Tensor key = other_step(c.key), added = other_step(values.added);
  const auto earlier = [&](const Tensor& x) { return einsum(values.products, x, over("other")); };
  const Tensor y = triangular_solve(values.products * other_step(c.beta), other_step(sums->value),
                                    "other", "step", {.upper = true, .unit_diagonal = true});
  const Tensor key_read = einsum(c.key, state, over("key_dim"));
  const Tensor d_products = neg(earlier_only(einsum(y, added, over("value_dim"))));
  const Tensor d_scaled = d_products * c.decay;
  sums->added = sums->added - other_as_step(einsum(values.products, y, over("step")));
  sums->by_beta = c.value - key_read * c.entering - earlier(added);
  sums->value = y;
  sums->key = sums->key + einsum(d_scaled, key, over("other")) +
              other_as_step(einsum(d_scaled, c.key, over("step"))) -
              einsum(y, state, over("value_dim")) * c.entering;
  sums->state = sums->state - einsum(c.key * c.entering, y, over("step"));
  sums->between = sums->between + d_products * einsum(c.key, key, over("key_dim"));
  sums->into = sums->into - reduce_sum(key_read * y, "value_dim");
}

ChunkCotangents cotangents_of(const Chunk& c, const Tensor& state, const Tensor& d_out,
                              const Tensor& d_state, bool delta) {
  const ChunkValues values = values_of(c, state, delta);
  const Tensor key = other_step(c.key), added = other_step(values.added);
  const Tensor d_pairs = einsum(d_out, added, over("value_dim"));
  const Tensor d_scores = d_pairs * c.decay;
  const Tensor to_end = other_as_step(last_step(c.decay));
  const Tensor value_state = einsum(values.added, d_state, over("value_dim"));
  const Tensor read = einsum(d_out, state, over("value_dim"));
  ChunkSums sums;
  sums.added = other_as_step(einsum(values.scores, d_out, over("step"))) +
               einsum(c.key, d_state, over("key_dim")) * to_end;
  sums.value = sums.added * c.beta;
  sums.by_beta = c.value;
  sums.key = other_as_step(einsum(d_scores, c.query, over("step"))) + value_state * to_end;
  sums.state = einsum(c.query * c.entering, d_out, over("step")) + d_state * last_step(c.entering);
  sums.between = d_pairs * einsum(c.query, key, over("key_dim"));
  sums.into = reduce_sum(c.query * read, "key_dim");
  if (delta) add_delta_rule(c, values, state, &sums);
  const Tensor d_decay =
      log_decay_cotangent(c, sums.between, sums.into, reduce_sum(c.key * value_state, "key_dim"),
                          reduce_sum(state * d_state, "key_dim value_dim"));
  return {{read * c.entering + einsum(d_scores, key, over("other")), sums.key, sums.value, d_decay,
           reduce_sum(sums.added * sums.by_beta, "value_dim")},
          sums.state};
}

// The states before all chunks first, then the chunks from the last to the first.
Tensors decompose_recurrence_grad(const Node& node, std::span<const Tensor> inputs) {
  const Operands at(node.attributes);
  const RepeatResult states = over_chunks(
      at, inputs, [](const Chunk&, const Tensor& state, const ChunkValues&) { return state; });
  Tensors stacked = chunks_of(at, inputs);
  stacked.push_back(chunked(widened(inputs[at.out_cotangent])));
  stacked.push_back(states.stacked[0]);
  const Tensor last = at.has_final ? inputs[at.final_cotangent] : zero_state(inputs);
  const RepeatResult loop = repeat(
      "chunks", stacked[0].size("chunks"), {last}, stacked,
      [&](const Tensor&, const Tensors& carries, Tensors slices) -> RepeatBody {
        const Tensor state = slices.back(), d_out = slices[slices.size() - 2];
        slices.resize(slices.size() - 2);
        ChunkCotangents result =
            cotangents_of(chunk_of(slices), state, d_out, carries[0], at.delta);
        return {{result.state}, result.tokens};
      },
      LoopOrder::kReversed);
  Tensors cotangents;
  for (size_t i = 0; i <= Operands::kBeta; ++i)
    cotangents.push_back(whole(loop.stacked[i], inputs[i].dtype()));
  if (at.has_state) cotangents.push_back(loop.carries[0]);
  return cotangents;
}

Tensors vjp_recurrence(const VjpContext& context) {
  const Operands at(context.node.attributes);
  Tensors operands(context.inputs.begin(), context.inputs.end());
  const Tensor &out = context.cotangents[0], &state = context.cotangents[1];
  operands.push_back(out.valid() ? out : zeros(context.outputs[0].type()));
  Attributes attributes = context.node.attributes;
  attributes.set(kFinal, state.valid());
  if (state.valid()) operands.push_back(state);
  const Tensors traced =
      trace_node(kLinearRecurrenceGradOp, operands, attributes, context.node.site);
  Tensors cotangents(traced.begin(), traced.begin() + Operands::kBeta + 1);
  cotangents.resize(context.inputs.size());
  if (at.has_state) cotangents[at.state] = traced.back();
  return cotangents;
}

// Counts `kProducts` products of a vector with the state for each token and head.
template <int kProducts>
double recurrence_flops(const Graph& graph, const Node& node) {
  const double value_dim =
      static_cast<double>(graph.type(node.inputs[Operands::kValue]).axes.back().size);
  return 2.0 * (Operands(node.attributes).delta ? kProducts + kProducts / 2 : kProducts) *
         static_cast<double>(graph.type(node.inputs[Operands::kQuery]).elements()) * value_dim;
}

}  // namespace

RecurrenceOperands::RecurrenceOperands(const Attributes& attributes)
    : delta(attributes.get(kDelta)),
      has_segments(attributes.get(kSegments)),
      has_state(attributes.get(kState)),
      has_final(attributes.get_or(kFinal, false)),
      segments(kBeta + 1),
      state(segments + (has_segments ? 1 : 0)),
      out_cotangent(state + (has_state ? 1 : 0)),
      final_cotangent(out_cotangent + 1) {}

const Op kLinearRecurrenceOp{{.name = "linear_recurrence",
                              .op_class = OpClass::kContraction,
                              .infer = infer_recurrence,
                              .vjp = vjp_recurrence,
                              .decomposition = decompose_recurrence,
                              .flops = recurrence_flops<2>}};
const Op kLinearRecurrenceGradOp{{.name = "linear_recurrence_grad",
                                  .op_class = OpClass::kContraction,
                                  .infer = infer_recurrence_grad,
                                  .decomposition = decompose_recurrence_grad,
                                  .flops = recurrence_flops<4>}};

LinearRecurrence linear_recurrence(Operand q, Operand k, Operand v, Operand log_decay, Operand beta,
                                   const LinearRecurrenceOptions& options) {
  const DType wide = wide_dtype(q.tensor.dtype());
  Tensors operands = {q.tensor, k.tensor, v.tensor, as_dtype(log_decay.tensor, wide),
                      as_dtype(beta.tensor, wide)};
  if (options.segment_ids.valid()) operands.push_back(options.segment_ids);
  if (options.state.valid()) operands.push_back(as_dtype(options.state, wide));
  const Tensors results = trace_node(kLinearRecurrenceOp, operands,
                                     {{kDelta, options.delta},
                                      {kSegments, options.segment_ids.valid()},
                                      {kState, options.state.valid()}},
                                     q.site);
  return {results[0], results[1]};
}

}  // namespace tessera
