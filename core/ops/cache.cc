// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cache.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/composite.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

enum : size_t { kCache, kRows, kUpdateStarts };
enum : size_t { kCachedQuery, kCachedKey, kCachedValue, kCachedStarts };

void check_cache_names(const InferContext& context, size_t i,
                       const std::vector<std::string>& names) {
  if (context.inputs[i].names() == names) return;
  refuse(context, fmt::format("{} is {}, expected the axes \"{}\" in this order; rename or "
                              "transpose it",
                              context.names[i], context.inputs[i].text(), fmt::join(names, " ")));
}

void check_floating_alike(const InferContext& context, size_t a, size_t b) {
  const DType dtype = context.inputs[a].dtype, other = context.inputs[b].dtype;
  if (!is_floating(dtype))
    refuse(context,
           fmt::format("{} is {}, expected a floating dtype", context.names[a], dtype_name(dtype)));
  if (other != dtype)
    refuse(context, fmt::format("{} is {}, {} is {}; cast one", context.names[a], dtype_name(dtype),
                                context.names[b], dtype_name(other)));
}

void check_starts(const InferContext& context, size_t i, const Axis& batch) {
  check_dtype(context, i, DType::kI32);
  check_same_axes(context, i, {batch});
}

constexpr std::string_view kTrain =
    "a cache is for decoding: train by the whole forward pass, with attention";

std::vector<Type> infer_cache_update(const InferContext& context) {
  refuse_partial(context);
  check_cache_names(context, kCache, {"batch", "kv_heads", "key_seq", "head_dim"});
  check_cache_names(context, kRows, {"batch", "seq", "kv_heads", "head_dim"});
  check_floating_alike(context, kCache, kRows);
  check_agreement(context, kCache, kRows);
  unsplit_axis_of(context, kCache, "key_seq");
  unsplit_axis_of(context, kRows, "seq");
  const Type& cache = context.inputs[kCache];
  check_starts(context, kUpdateStarts, cache.axes[0]);
  return {cache};
}

// i32["batch key_seq"]: key position minus the row's start.
Tensor behind_start(const Axis& key_seq, const Tensor& starts) {
  const Tensor position = iota({.name = key_seq.name, .size = key_seq.size});
  return neg(sub(starts, position));
}

// Key position start + i takes new row i, if that exists.
std::vector<Tensor> decompose_cache_update(const Node&, std::span<const Tensor> inputs) {
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

std::vector<Type> infer_cached_attention(const InferContext& context) {
  refuse_partial(context);
  check_cache_names(context, kCachedQuery, {"batch", "seq", "heads", "head_dim"});
  check_cache_names(context, kCachedKey, {"batch", "kv_heads", "key_seq", "head_dim"});
  check_same_axes(context, kCachedValue, context.inputs[kCachedKey].axes);
  check_floating_alike(context, kCachedQuery, kCachedKey);
  check_floating_alike(context, kCachedQuery, kCachedValue);
  check_agreement(context, kCachedQuery, kCachedKey);
  unsplit_axis_of(context, kCachedQuery, "seq");
  unsplit_axis_of(context, kCachedQuery, "head_dim");
  unsplit_axis_of(context, kCachedKey, "key_seq");
  check_heads(context, kCachedQuery, kCachedKey);
  const Type& q = context.inputs[kCachedQuery];
  check_starts(context, kCachedStarts, q.axes[0]);
  return {q};
}

std::vector<Tensor> decompose_cached_attention(const Node& node, std::span<const Tensor> inputs) {
  const double scale = node.attributes.get<double>("scale");
  const double cap = node.attributes.get<double>("logit_cap");
  const Tensor &q = inputs[kCachedQuery], &starts = inputs[kCachedStarts];
  const Tensor key = widened(inputs[kCachedKey]), value = widened(inputs[kCachedValue]);
  const int64_t kv_heads = key.size("kv_heads");
  const Tensor grouped = split_axis(widened(q), "heads", {.name = "kv_heads", .size = kv_heads},
                                    {.name = "group", .size = q.size("heads") / kv_heads});
  Tensor scores = einsum(
      "batch seq kv_heads group head_dim, batch kv_heads key_seq head_dim -> "
      "batch kv_heads group seq key_seq",
      grouped, key);
  scores = scores * scale;
  if (cap > 0.0) scores = tanh(scores / cap) * cap;

  // Visible: key position <= start + query index.
  const Tensor number = iota({.name = "seq", .size = q.size("seq")});
  const Tensor seen = less_equal(behind_start(key.type().axis("key_seq"), starts), number);
  const auto masked = [&](const Tensor& values, double otherwise) {
    return where(seen, values, constant(otherwise, values.dtype()));
  };
  const Tensor maximum = reduce_max(masked(scores, -1e30), "key_seq");
  const Tensor weights = masked(exp(scores - maximum), 0.0);
  const Tensor sum = reduce_sum(weights, "key_seq");
  const Tensor empty = equal(sum, constant(0.0, sum.dtype()));
  const Tensor divisor = where(empty, constant(1.0, sum.dtype()), sum);
  const Tensor out = einsum(
      "batch kv_heads group seq key_seq, batch kv_heads key_seq head_dim -> "
      "batch seq kv_heads group head_dim",
      weights / divisor, value);
  return {as_dtype(merge_axes(out, "kv_heads", "group", "heads"), q.dtype())};
}

// Two products over the whole cache: the visible part is known only at run time.
double flops_cached_attention(const Graph& graph, const Node& node) {
  const Type& q = graph.type(node.inputs[kCachedQuery]);
  const Type& key = graph.type(node.inputs[kCachedKey]);
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(key.axis("key_seq").size);
}

}  // namespace

const Op kCacheUpdateOp{{.name = "cache_update",
                         .op_class = OpClass::kDataMovement,
                         .infer = infer_cache_update,
                         .instead_of_gradient = kTrain,
                         .decomposition = decompose_cache_update,
                         .flops = no_flops}};
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
  const Attributes attributes = {{"scale", options.scale}, {"logit_cap", options.logit_cap}};
  return trace_op(kCachedAttentionOp, {q.tensor, key.tensor, value.tensor, starts.tensor},
                  attributes, q.site);
}

}  // namespace tessera
