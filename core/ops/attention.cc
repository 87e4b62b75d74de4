// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/attention_sinks.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Operands: q, k, v, [segment_ids, key_segment_ids]; for the gradient also out, lse and out's
// cotangent. Results: out and lse (the logarithm of the softmax's denominator, saved for the
// gradient; kEmptyLse for a query that may attend to no key).
enum : size_t { kQuery, kKey, kValue, kSegments, kKeySegments };

// Checks that kv_heads divides heads and is split like it; a single kv head may be unsplit.
void check_heads(const InferContext& context) {
  const Axis& heads = context.inputs[kQuery].axis("heads");
  const Axis& kv_heads = context.inputs[kKey].axis("kv_heads");
  if (heads.size % kv_heads.size != 0)
    refuse(context, "heads={} of {} is not a multiple of kv_heads={} of {}", heads.size,
           context.names[kQuery], kv_heads.size, context.names[kKey]);
  const bool shared = kv_heads.size == 1 && kv_heads.split.empty();
  if (heads.split != kv_heads.split && !shared)
    refuse(context, "{} has {}, {} has {}; split both the same way with rules.activations",
           context.names[kQuery], heads.text(), context.names[kKey], kv_heads.text());
}

// Checks queries, and keys and values, whose axes are `key_names` in this order.
void check_query_key_value(const InferContext& context, std::string_view key_names) {
  refuse_partial(context);
  check_axis_names(context, kQuery, "batch seq heads head_dim");
  check_axis_names(context, kKey, key_names);
  check_agreement(context, kQuery, kKey);
  check_same_axes(context, kValue, context.inputs[kKey].axes);
  for (const size_t i : {kKey, kValue}) check_dtypes_agree(context, kQuery, i);
  unsplit_axis_of(context, kQuery, "head_dim");
  check_heads(context);
}

// Checks for whole sequences, or queries and keys split alike; causal rings need 2 chunks per
// device.
void check_sequences(const InferContext& context) {
  const Axis& seq = context.inputs[kQuery].axis("seq");
  const Axis& key_seq = context.inputs[kKey].axis("key_seq");
  if (seq.split.empty() && key_seq.split.empty()) return;
  if (seq.split != key_seq.split || seq.size != key_seq.size)
    refuse(context, "{} has {}={}, {} has {}={}; split both the same way, or neither",
           context.names[kQuery], seq.text(), seq.size, context.names[kKey], key_seq.text(),
           key_seq.size);
  const int64_t devices = context.mesh.size_along(seq.split);
  const bool is_ring = devices > 1 && context.attributes.get(key::kCausal) &&
                       !sees_nearby_keys(context.attributes, key_seq.size);
  if (is_ring && seq.size % (2 * devices) != 0)
    refuse(context,
           "causal attention cuts seq={} of {} into two chunks for each of the "
           "devices of {}={}; the nearest size that can be cut is {}",
           seq.size, context.names[kQuery], fmt::join(seq.split, "*"), devices,
           nearest_multiple(seq.size, 2 * devices));
}

void check_attention_operands(const InferContext& context) {
  check_query_key_value(context, "batch key_seq kv_heads head_dim");
  const int64_t keys = context.inputs[kKey].axis("key_seq").size;
  if (const int64_t first = first_query(context.attributes); first < 0 || first > keys)
    refuse(context, "first_query={} is not among key_seq={} of {}", first, keys,
           context.names[kKey]);
  check_sequences(context);
  if (!context.attributes.get(key::kSegments)) return;
  const Type& q = context.inputs[kQuery];
  check_dtype(context, kSegments, DType::kI32);
  check_same_axes(context, kSegments, {q.axes[0], q.axes[1]});
  check_dtype(context, kKeySegments, DType::kI32);
  check_same_axes(context, kKeySegments, {q.axes[0], context.inputs[kKey].axes[1]});
}

// The scores that causal queries see. Up to the key at its position, counted as half, query i sees
// i + first_query keys; without a window all of them, else those that query i - window does not.
double causal_scores(int64_t queries, int64_t keys, const Attributes& attributes) {
  const auto count = static_cast<double>(queries), most = static_cast<double>(keys);
  // The integral of clamp(x, 0, most) up to x.
  const auto integral = [&](double x) {
    return x <= most ? 0.5 * std::max(x, 0.0) * std::max(x, 0.0) : most * (x - 0.5 * most);
  };
  const auto before = [&](double first) { return integral(first + count) - integral(first); };
  const auto first = static_cast<double>(first_query(attributes));
  const int64_t window = attention_window(attributes);
  return before(first) - (window == 0 ? 0.0 : before(first - static_cast<double>(window)));
}

// Returns the FLOPs of `kProducts` matrix products over the scores that are seen.
// Recomputation in the gradient is not counted, as usual for MFU.
template <int kProducts>
double score_flops(const Graph& graph, const Node& node) {
  const Type& q = graph.type(node.inputs[kQuery]);
  const int64_t queries = q.axis("seq").size;
  const int64_t keys = graph.type(node.inputs[kKey]).axis("key_seq").size;
  const double scores = node.attributes.get(key::kCausal)
                            ? causal_scores(queries, keys, node.attributes)
                            : static_cast<double>(queries) * static_cast<double>(keys);
  return kProducts * 2.0 * static_cast<double>(q.elements() / std::max<int64_t>(queries, 1)) *
         scores;
}

// Groups query heads by the key head they read.
Tensor grouped(const Tensor& x, const Tensor& k) {
  const int64_t kv_heads = k.size("kv_heads");
  return split_axis(x, "heads", {.name = "kv_heads", .size = kv_heads},
                    {.name = "group", .size = x.size("heads") / kv_heads});
}
Tensor ungrouped(const Tensor& x) { return merge_axes(x, "kv_heads", "group", "heads"); }

// Scores["batch kv_heads group seq key_seq"] in f32, capped but not masked, and the mask (invalid:
// no mask).
struct Scores {
  Tensor grouped_query, values, mask;
};

// Computes scores without the mask.
Scores unmasked_scores(const Node& node, const Tensor& query, const Tensor& key) {
  Scores scores;
  scores.grouped_query = grouped(widened(query), key);
  const std::string key_names = joined(key.type().names());
  scores.values = einsum(fmt::format("batch seq kv_heads group head_dim, {} -> "
                                     "batch kv_heads group seq key_seq",
                                     key_names),
                         scores.grouped_query, widened(key));
  scores.values = soft_cap(scores.values * node.attributes.get(key::kScale),
                           node.attributes.get(key::kLogitCap));
  return scores;
}

Tensor later_by(const Tensor& position, int64_t distance) {
  return add(position, constant(static_cast<double>(distance), DType::kI32));
}

// Whether a key is one of the `window` last ones up to the query's position.
Tensor window_mask(const Tensor& query, const Tensor& key, int64_t window) {
  return less(query, later_by(key, window));
}

// The mask by positions of causal attention.
Tensor position_mask(const Attributes& attributes, const Axis& seq, const Axis& key_seq) {
  const int64_t first = first_query(attributes), window = attention_window(attributes);
  const auto query = [&] { return first == 0 ? iota(seq) : later_by(iota(seq), first); };
  Tensor mask = first == 0 ? causal_mask(seq, key_seq) : less_equal(iota(key_seq), query());
  return window == 0 ? mask : logical_and(window_mask(query(), iota(key_seq), window), mask);
}

Scores scores_of(const Node& node, std::span<const Tensor> inputs) {
  Scores scores = unmasked_scores(node, inputs[kQuery], inputs[kKey]);
  const Axis& seq = scores.values.type().axis("seq");
  const Axis& key_seq = scores.values.type().axis("key_seq");
  if (node.attributes.get(key::kCausal)) scores.mask = position_mask(node.attributes, seq, key_seq);
  if (node.attributes.get(key::kSegments)) {
    const Tensor same = equal(inputs[kSegments], inputs[kKeySegments]);
    scores.mask = scores.mask ? logical_and(same, scores.mask) : same;
  }
  return scores;
}

// Returns values where the mask allows, else `otherwise`.
Tensor masked(const Scores& scores, const Tensor& values, double otherwise) {
  if (!scores.mask) return values;
  return where(scores.mask, values, constant(otherwise, values.dtype()));
}

// The softmax over key_seq times the values, and the logarithm of its denominator. A fully masked
// row has the maximum kLowest and the sum 0: its results are 0.
Attended attend(const Scores& scores, const Tensor& value) {
  constexpr double kLowest = -1e30;
  const Tensor maximum = reduce_max(masked(scores, scores.values, kLowest), "key_seq");
  const Tensor weights = masked(scores, exp(scores.values - maximum), 0.0);
  const Tensor sum = reduce_sum(weights, "key_seq");
  const Tensor zero = constant(0.0, sum.dtype());
  const Tensor empty = equal(sum, zero);
  const Tensor divisor = where(empty, constant(1.0, sum.dtype()), sum);
  const Tensor out = einsum(fmt::format("batch kv_heads group seq key_seq, {} -> "
                                        "batch seq kv_heads group head_dim",
                                        joined(value.type().names())),
                            weights / divisor, widened(value));
  return {as_dtype(ungrouped(out), value.dtype()),
          ungrouped(where(empty, constant(kEmptyLse, sum.dtype()), maximum + log(divisor)))};
}

// Returns [batch kv_heads group seq] from the op's results [batch heads seq] or [batch seq heads].
Tensor grouped_rows(const Tensor& x, const Tensor& k) {
  return transpose(grouped(x, k), "batch kv_heads group seq");
}

Types infer_attention_grad(const InferContext& context) {
  check_attention_operands(context);
  check_same_axes(context, context.inputs.size() - 1, context.inputs[kQuery].axes);
  const Type& q = context.inputs[kQuery];
  Type dk = context.inputs[kKey];
  // One key head for all query heads: each device has the gradient of its own heads.
  const std::vector<std::string>& split = q.axis("heads").split;
  if (dk.axis("kv_heads").split != split)
    dk.partial = {PartialKind::kSum, mesh_union(context.mesh, split, {})};
  return {q, dk, dk};
}

Tensors decompose_attention_grad(const Node& node, std::span<const Tensor> inputs) {
  const size_t operands = node.attributes.get(key::kSegments) ? 5 : 3;
  const Tensor key = widened(inputs[kKey]), out = widened(inputs[operands]);
  const Tensor& lse = inputs[operands + 1];
  const Tensor cotangent = widened(inputs[operands + 2]);
  const Scores scores = scores_of(node, inputs);

  const Tensor probabilities = masked(scores, exp(scores.values - grouped_rows(lse, key)), 0.0);
  const Tensor grouped_cotangent = grouped(cotangent, key);
  const Tensor dprobabilities = einsum(
      "batch seq kv_heads group head_dim, batch key_seq kv_heads head_dim -> "
      "batch kv_heads group seq key_seq",
      grouped_cotangent, widened(inputs[kValue]));
  const Tensor delta = grouped_rows(reduce_sum(cotangent * out, "head_dim"), key);
  const Tensor dscores = soft_cap_grad(scores.values, probabilities * (dprobabilities - delta),
                                       node.attributes.get(key::kLogitCap)) *
                         node.attributes.get(key::kScale);

  const Tensor dq = einsum(
      "batch kv_heads group seq key_seq, batch key_seq kv_heads head_dim -> "
      "batch seq kv_heads group head_dim",
      dscores, key);
  const Tensor dk = einsum(
      "batch kv_heads group seq key_seq, batch seq kv_heads group head_dim -> "
      "batch key_seq kv_heads head_dim",
      dscores, scores.grouped_query);
  const Tensor dv = einsum(
      "batch kv_heads group seq key_seq, batch seq kv_heads group head_dim -> "
      "batch key_seq kv_heads head_dim",
      probabilities, grouped_cotangent);
  const DType dtype = inputs[kQuery].dtype();
  return {as_dtype(ungrouped(dq), dtype), as_dtype(dk, dtype), as_dtype(dv, dtype)};
}

// out and lse.
Types result_types(const Type& q) {
  return {q, make_type(wide_dtype(q.dtype), {q.axes[0], q.axes[2], q.axes[1]})};
}

Types infer_attention(const InferContext& context) {
  check_attention_operands(context);
  return result_types(context.inputs[kQuery]);
}

Tensors decompose_attention(const Node& node, std::span<const Tensor> inputs) {
  const Attended result = attend(scores_of(node, inputs), inputs[kValue]);
  return {result.out, result.lse};
}

Tensors vjp_attention(const VjpContext& context) {
  Tensors operands(context.inputs.begin(), context.inputs.end());
  operands.insert(operands.end(), context.outputs.begin(), context.outputs.end());
  operands.push_back(context.cotangents[0]);
  Tensors cotangents =
      trace_node(kAttentionGradOp, operands, context.node.attributes, context.node.site);
  cotangents.resize(context.inputs.size());  // None for the segment ids.
  return cotangents;
}

enum : size_t { kCache, kRows, kUpdateStarts };
enum : size_t { kStarts = 3 };  // Operand of cached_attention after query, key and value.

void check_starts(const InferContext& context, size_t i, const Axis& batch) {
  check_dtype(context, i, DType::kI32);
  check_same_axes(context, i, {batch});
}

constexpr std::string_view kTrain =
    "the cache is for decoding only; train with attention over whole sequences";

Types infer_cache_update(const InferContext& context) {
  refuse_partial(context);
  check_axis_names(context, kCache, "batch kv_heads key_seq head_dim");
  check_axis_names(context, kRows, "batch seq kv_heads head_dim");
  check_floating_operand(context, kCache);
  check_dtypes_agree(context, kCache, kRows);
  check_agreement(context, kCache, kRows);
  unsplit_axis_of(context, kCache, "key_seq");
  unsplit_axis_of(context, kRows, "seq");
  const Type& cache = context.inputs[kCache];
  check_starts(context, kUpdateStarts, cache.axes[0]);
  return {cache};
}

// Returns i32["batch key_seq"]: key position minus the row's start.
Tensor behind_start(const Axis& key_seq, const Tensor& starts) {
  const Tensor position = iota({.name = key_seq.name, .size = key_seq.size});
  return neg(sub(starts, position));
}

// Writes new row i, if it exists, at key position start + i.
Tensors decompose_cache_update(const Node&, std::span<const Tensor> inputs) {
  const Tensor& cache = inputs[kCache];
  const Tensor& rows = inputs[kRows];
  const Tensor number = behind_start(cache.type().axis("key_seq"), inputs[kUpdateStarts]);
  const int64_t count = rows.size("seq");
  const Tensor wide = widened(rows);
  const Tensor chosen = one_hot(number, {.name = "seq", .size = count}, wide.dtype());
  const Tensor moved =
      einsum("batch key_seq seq, batch seq kv_heads head_dim -> batch kv_heads key_seq head_dim",
             chosen, wide);
  const Tensor written =
      logical_and(less_equal(constant(0.0, DType::kI32), number),
                  less(number, constant(static_cast<double>(count), DType::kI32)));
  return {where(written, as_dtype(moved, cache.dtype()), cache)};
}

Types infer_cached_attention(const InferContext& context) {
  check_query_key_value(context, "batch kv_heads key_seq head_dim");
  unsplit_axis_of(context, kQuery, "seq");
  unsplit_axis_of(context, kKey, "key_seq");
  check_floating_operand(context, kQuery);
  const Type& q = context.inputs[kQuery];
  check_starts(context, kStarts, q.axes[0]);
  return result_types(q);
}

// Query i sees key positions <= start + i.
Tensors decompose_cached_attention(const Node& node, std::span<const Tensor> inputs) {
  Scores scores = unmasked_scores(node, inputs[kQuery], inputs[kKey]);
  const Tensor number = iota({.name = "seq", .size = inputs[kQuery].size("seq")});
  const Tensor behind = behind_start(inputs[kKey].type().axis("key_seq"), inputs[kStarts]);
  scores.mask = less_equal(behind, number);
  if (const int64_t window = attention_window(node.attributes); window > 0)
    scores.mask = logical_and(window_mask(number, behind, window), scores.mask);
  const Attended result = attend(scores, inputs[kValue]);
  return {result.out, result.lse};
}

// Counts two products over the whole cache: the visible part is known only at run time.
double flops_cached_attention(const Graph& graph, const Node& node) {
  const Type& q = graph.type(node.inputs[kQuery]);
  const Type& key = graph.type(node.inputs[kKey]);
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(key.axis("key_seq").size);
}

// Counts the rows only: the cache is updated in place.
double cache_update_bytes(const Graph& graph, const Node& node) {
  return 2.0 * static_cast<double>(graph.type(node.inputs[1]).bytes());
}

// Whether several devices have query heads of one key head: its gradient is a sum over them.
bool shares_heads_between_devices(const Tensor& q, const Tensor& k) {
  return q.has("heads") && k.has("kv_heads") && !q.type().axis("heads").split.empty() &&
         k.type().axis("kv_heads").split.empty();
}

}  // namespace

const Op kAttentionGradOp{{.name = "attention_grad",
                           .op_class = OpClass::kContraction,
                           .infer = infer_attention_grad,
                           .decomposition = decompose_attention_grad,
                           .flops = score_flops<4>}};
const Op kAttentionOp{{.name = "attention",
                       .op_class = OpClass::kContraction,
                       .infer = infer_attention,
                       .vjp = vjp_attention,
                       .decomposition = decompose_attention,
                       .flops = score_flops<2>}};
int64_t attention_window(const Attributes& attributes) {
  return attributes.get_or(key::kWindow, 0);
}
int64_t first_query(const Attributes& attributes) { return attributes.get_or(key::kFirstQuery, 0); }

bool sees_nearby_keys(const Attributes& attributes, int64_t keys) {
  const int64_t window = attention_window(attributes);
  return first_query(attributes) > 0 || (window > 0 && window < keys);
}

Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  if ((options.window > 0 || options.first_query != 0) && options.mask != AttentionMask::kCausal)
    fail("attention in a window={} with first_query={} must be causal", options.window,
         options.first_query);
  Attributes attributes = {{key::kCausal, options.mask == AttentionMask::kCausal},
                           {key::kSegments, options.segment_ids.valid()},
                           {key::kScale, options.scale},
                           {key::kLogitCap, options.logit_cap}};
  if (options.window > 0) attributes.set(key::kWindow, options.window);
  if (options.first_query != 0) attributes.set(key::kFirstQuery, options.first_query);
  Tensors operands = {q.tensor, k.tensor, v.tensor};
  if (trace_state().is_mesh_invariant && shares_heads_between_devices(q.tensor, k.tensor)) {
    AttentionOptions of_all = options;
    if (options.sinks) of_all.sinks = whole_along(options.sinks, "heads");
    const Tensor whole = attention({whole_along(q, "heads"), q.site}, k, v, of_all);
    return reshard({whole, q.site}, q.tensor.type());
  }
  // MQA replicates K and V; GQA repeats kv heads per device.
  for (const size_t i : {kKey, kValue})
    if (q.tensor.has("heads") && operands[i].has("kv_heads") && operands[i].size("kv_heads") > 1)
      operands[i] = shared_heads({operands[i], q.site}, q.tensor.type().axis("heads"));
  if (options.key_segment_ids && !options.segment_ids)
    fail("attention: key_segment_ids are given, segment_ids are not");
  if (options.segment_ids) {
    operands.push_back(options.segment_ids);
    operands.push_back(options.key_segment_ids
                           ? options.key_segment_ids
                           : rename({options.segment_ids, q.site}, "seq", "key_seq"));
  }
  const Tensors results = trace_node(kAttentionOp, operands, attributes, q.site);
  if (!options.sinks) return results[0];
  const Tensor sinks = as_dtype(options.sinks, results[1].dtype());
  operands.insert(operands.end(), {results[0], results[1], sinks});
  return trace_node(kAttentionSinksOp, operands, attributes, q.site)[0];
}

Tensor shared_heads(Operand x, const Axis& heads) {
  const Type& type = x.tensor.type();
  const Axis& kv_heads = type.axis("kv_heads");
  if (heads.split.empty() || !kv_heads.split.empty()) return x.tensor;
  const int64_t devices = traced_mesh().size_along(heads.split);
  if (kv_heads.size % devices == 0) return x.tensor;
  if (devices % kv_heads.size != 0)
    fail(
        "{}: attention: heads are split by {}={}, which kv_heads={} can neither be split by nor "
        "divide; the nearest legal kv_heads is {}, or leave heads unsplit",
        x.site.text(), fmt::join(heads.split, "*"), devices, kv_heads.size,
        std::gcd(kv_heads.size, devices));
  const std::vector<std::string> names = type.names();
  std::vector<std::string> order = names;
  std::erase(order, "kv_heads");
  order.insert(order.begin(), "kv_heads");
  const Tensor table = names == order ? x.tensor : transpose(x, joined(order));
  // Device d of n reads head ⌊d·kv_heads/n⌋.
  const Tensor number = cast(iota({"shared", devices, heads.split}), DType::kF32);
  const double share = static_cast<double>(kv_heads.size) / static_cast<double>(devices);
  const Tensor ids = cast((number + 0.5) * share, DType::kI32);
  const Tensor repeated = rename({gather(table, ids, "kv_heads"), x.site}, "shared", "kv_heads");
  return names == order ? repeated : transpose({repeated, x.site}, joined(names));
}

const Op kCacheUpdateOp{{.name = "cache_update",
                         .op_class = OpClass::kDataMovement,
                         .infer = infer_cache_update,
                         .instead_of_gradient = kTrain,
                         .decomposition = decompose_cache_update,
                         .flops = no_flops,
                         .bytes = cache_update_bytes}};
const Op kCachedAttentionOp{{.name = "cached_attention",
                             .op_class = OpClass::kContraction,
                             .infer = infer_cached_attention,
                             .instead_of_gradient = kTrain,
                             .decomposition = decompose_cached_attention,
                             .flops = flops_cached_attention}};

Tensor cache_update(Operand cache, Operand rows, Operand starts) {
  return trace_op(kCacheUpdateOp, {cache.tensor, rows.tensor, starts.tensor}, {}, cache.site);
}

Tensor cached_attention(Operand q, Operand key, Operand value, Operand starts,
                        const CachedAttentionOptions& options) {
  Attributes attributes = {{key::kCausal, true},
                           {key::kSegments, false},
                           {key::kScale, options.scale},
                           {key::kLogitCap, options.logit_cap}};
  if (options.window > 0) attributes.set(key::kWindow, options.window);
  const Tensors results = trace_node(
      kCachedAttentionOp, {q.tensor, key.tensor, value.tensor, starts.tensor}, attributes, q.site);
  const Attended plain{results[0], results[1]};
  return options.sinks ? with_sinks(plain, options.sinks).out : plain.out;
}

}  // namespace tessera
