// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/activation.h"
#include "core/ops/composite.h"
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
// gradient; 0 for a query that may attend to no key).
enum : size_t { kQuery, kKey, kValue, kSegments, kKeySegments };

struct AttentionAttributes {
  explicit AttentionAttributes(const Attributes& attributes)
      : causal(attributes.get<int64_t>("causal") != 0),
        segments(attributes.get<int64_t>("segments") != 0),
        scale(attributes.get<double>("scale")),
        logit_cap(attributes.get<double>("logit_cap")) {}
  size_t operands() const { return segments ? 5 : 3; }

  bool causal, segments;
  double scale, logit_cap;
};

void check_operand_names(const InferContext& context, size_t i,
                         const std::vector<std::string>& names) {
  if (context.inputs[i].names() == names) return;
  refuse(context, fmt::format("{} is {}, expected the axes \"{}\" in this order; rename or "
                              "transpose it",
                              context.names[i], context.inputs[i].text(), fmt::join(names, " ")));
}

void check_attention_operands(const InferContext& context) {
  const AttentionAttributes attention(context.attributes);
  refuse_partial(context);
  check_operand_names(context, kQuery, {"batch", "seq", "heads", "head_dim"});
  check_operand_names(context, kKey, {"batch", "key_seq", "kv_heads", "head_dim"});
  check_agreement(context, kQuery, kKey);
  check_same_axes(context, kValue, context.inputs[kKey].axes);
  for (const size_t i : {kKey, kValue}) {
    if (context.inputs[i].dtype != context.inputs[kQuery].dtype)
      refuse(context, fmt::format("{} is {}, {} is {}; cast one", context.names[kQuery],
                                  dtype_name(context.inputs[kQuery].dtype), context.names[i],
                                  dtype_name(context.inputs[i].dtype)));
  }
  unsplit_axis_of(context, kQuery, "seq");
  unsplit_axis_of(context, kQuery, "head_dim");
  unsplit_axis_of(context, kKey, "key_seq");
  check_heads(context, kQuery, kKey);
  if (!attention.segments) return;
  const Type& q = context.inputs[kQuery];
  check_dtype(context, kSegments, DType::kI32);
  check_same_axes(context, kSegments, {q.axes[0], q.axes[1]});
  check_dtype(context, kKeySegments, DType::kI32);
  check_same_axes(context, kKeySegments, {q.axes[0], context.inputs[kKey].axes[1]});
}

// FLOPs of `products` matrix products over the scores, half of that if causal. Recomputation in the
// gradient is not counted, as usual for MFU.
double score_flops(const Graph& graph, const Node& node, double products) {
  const Type& q = graph.type(node.inputs[kQuery]);
  const double scores = static_cast<double>(q.elements()) *
                        static_cast<double>(graph.type(node.inputs[kKey]).axis("key_seq").size);
  return products * 2.0 * scores * (AttentionAttributes(node.attributes).causal ? 0.5 : 1.0);
}

// Scores["batch kv_heads group seq key_seq"] in f32, capped but not masked, and the mask (invalid:
// no mask). Query heads are grouped by the key head they read.
struct Scores {
  Tensor grouped_query, values, mask;
};

Tensor grouped(const Tensor& x, const Tensor& k) {
  const int64_t kv_heads = k.size("kv_heads");
  return split_axis(x, "heads", {.name = "kv_heads", .size = kv_heads},
                    {.name = "group", .size = x.size("heads") / kv_heads});
}
Tensor ungrouped(const Tensor& x) { return merge_axes(x, "kv_heads", "group", "heads"); }

Scores scores_of(const AttentionAttributes& attention, std::span<const Tensor> inputs) {
  Scores scores;
  scores.grouped_query = grouped(widened(inputs[kQuery]), inputs[kKey]);
  scores.values = einsum(
      "batch seq kv_heads group head_dim, batch key_seq kv_heads head_dim -> "
      "batch kv_heads group seq key_seq",
      scores.grouped_query, widened(inputs[kKey]));
  scores.values = scores.values * attention.scale;
  if (attention.logit_cap > 0.0)
    scores.values = tanh(scores.values / attention.logit_cap) * attention.logit_cap;

  if (attention.causal) {
    scores.mask =
        causal_mask(scores.values.type().axis("seq"), scores.values.type().axis("key_seq"));
  }
  if (attention.segments) {
    const Tensor same = equal(inputs[kSegments], inputs[kKeySegments]);
    scores.mask = scores.mask ? logical_and(same, scores.mask) : same;
  }
  return scores;
}

// values where the mask allows, else `otherwise`.
Tensor masked(const Scores& scores, const Tensor& values, double otherwise) {
  if (!scores.mask) return values;
  return where(scores.mask, values, constant(otherwise, values.dtype()));
}

// [batch kv_heads group seq] from the [batch heads seq] or [batch seq heads] of the op's results.
Tensor grouped_rows(const Tensor& x, const Tensor& k) {
  return transpose(grouped(x, k), "batch kv_heads group seq");
}

std::vector<Type> infer_attention_grad(const InferContext& context) {
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

std::vector<Tensor> decompose_attention_grad(const Node& node, std::span<const Tensor> inputs) {
  const AttentionAttributes attention(node.attributes);
  const Tensor key = widened(inputs[kKey]);
  const Tensor out = widened(inputs[attention.operands()]);
  const Tensor& lse = inputs[attention.operands() + 1];
  const Tensor cotangent = widened(inputs[attention.operands() + 2]);
  const Scores scores = scores_of(attention, inputs);

  const Tensor probabilities = masked(scores, exp(scores.values - grouped_rows(lse, key)), 0.0);
  const Tensor grouped_cotangent = grouped(cotangent, key);
  const Tensor dprobabilities = einsum(
      "batch seq kv_heads group head_dim, batch key_seq kv_heads head_dim -> "
      "batch kv_heads group seq key_seq",
      grouped_cotangent, widened(inputs[kValue]));
  const Tensor delta = grouped_rows(reduce_sum(cotangent * out, "head_dim"), key);
  Tensor dscores = probabilities * (dprobabilities - delta);
  if (attention.logit_cap > 0.0)
    dscores = dscores * (1.0 - square(scores.values / attention.logit_cap));
  dscores = dscores * attention.scale;

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

double flops_attention_grad(const Graph& graph, const Node& node) {
  return score_flops(graph, node, 4.0);
}

std::vector<Type> infer_attention(const InferContext& context) {
  check_attention_operands(context);
  const Type& q = context.inputs[kQuery];
  return {q, make_type(wide_dtype(q.dtype), {q.axes[0], q.axes[2], q.axes[1]})};
}

std::vector<Tensor> decompose_attention(const Node& node, std::span<const Tensor> inputs) {
  const AttentionAttributes attention(node.attributes);
  const Scores scores = scores_of(attention, inputs);
  // A fully masked row has the maximum kLowest and the sum 0: its results are 0.
  constexpr double kLowest = -1e30;
  const Tensor maximum = reduce_max(masked(scores, scores.values, kLowest), "key_seq");
  const Tensor weights = masked(scores, exp(scores.values - maximum), 0.0);
  const Tensor sum = reduce_sum(weights, "key_seq");
  const Tensor empty = equal(sum, constant(0.0, sum.dtype()));
  const Tensor one = constant(1.0, sum.dtype());
  const Tensor divisor = where(empty, one, sum);
  const Tensor out = einsum(
      "batch kv_heads group seq key_seq, batch key_seq kv_heads head_dim -> "
      "batch seq kv_heads group head_dim",
      weights / divisor, widened(inputs[kValue]));
  const Tensor lse = where(empty, constant(0.0, sum.dtype()), maximum + log(divisor));
  return {as_dtype(ungrouped(out), inputs[kQuery].dtype()), ungrouped(lse)};
}

std::vector<Tensor> vjp_attention(const VjpContext& context) {
  std::vector<Tensor> operands(context.inputs.begin(), context.inputs.end());
  operands.insert(operands.end(), context.outputs.begin(), context.outputs.end());
  operands.push_back(context.cotangents[0]);
  std::vector<Tensor> cotangents =
      trace_node(kAttentionGradOp, operands, context.node.attributes, context.node.site);
  cotangents.resize(context.inputs.size());  // None for the segment ids.
  return cotangents;
}

double flops_attention(const Graph& graph, const Node& node) {
  return score_flops(graph, node, 2.0);
}

}  // namespace

const Op kAttentionGradOp{{.name = "attention_grad",
                           .op_class = OpClass::kContraction,
                           .infer = infer_attention_grad,
                           .decomposition = decompose_attention_grad,
                           .flops = flops_attention_grad}};
const Op kAttentionOp{{.name = "attention",
                       .op_class = OpClass::kContraction,
                       .infer = infer_attention,
                       .vjp = vjp_attention,
                       .decomposition = decompose_attention,
                       .flops = flops_attention}};

Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  const Attributes attributes = {{"causal", int64_t{options.mask == AttentionMask::kCausal}},
                                 {"segments", int64_t{options.segment_ids.valid()}},
                                 {"scale", options.scale},
                                 {"logit_cap", options.logit_cap}};
  std::vector<Tensor> operands = {q.tensor, k.tensor, v.tensor};
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
  return trace_node(kAttentionOp, operands, attributes, q.site)[0];
}

void check_heads(const InferContext& context, size_t query, size_t key) {
  const Axis& heads = context.inputs[query].axis("heads");
  const Axis& kv_heads = context.inputs[key].axis("kv_heads");
  if (heads.size % kv_heads.size != 0)
    refuse(context, fmt::format("heads={} of {} is not a multiple of kv_heads={} of {}", heads.size,
                                context.names[query], kv_heads.size, context.names[key]));
  const bool shared = kv_heads.size == 1 && kv_heads.split.empty();
  if (heads.split != kv_heads.split && !shared)
    refuse(context,
           fmt::format("{} has {}, {} has {}; split both alike with rules.activations",
                       context.names[query], heads.text(), context.names[key], kv_heads.text()));
}

Tensor shared_heads(Operand x, const Axis& heads) {
  const Type& type = x.tensor.type();
  const Axis& kv_heads = type.axis("kv_heads");
  if (heads.split.empty() || !kv_heads.split.empty()) return x.tensor;
  const int64_t devices = traced_mesh().size_along(heads.split);
  if (kv_heads.size % devices == 0) return x.tensor;
  if (devices % kv_heads.size != 0) {
    fail(
        "{}: attention: heads are split by {}={}, which kv_heads={} can neither be split by nor "
        "divide; the nearest legal kv_heads is {}, or leave heads unsplit",
        x.site.text(), fmt::join(heads.split, "*"), devices, kv_heads.size,
        std::gcd(kv_heads.size, devices));
  }
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

}  // namespace tessera
