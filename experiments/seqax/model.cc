// SPDX-License-Identifier: Apache-2.0
#include "experiments/seqax/model.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/rotary.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(BaseModel, SeqaxModel);

namespace {

constexpr double kEpsilon = 1e-6;
// The standard deviation of a standard normal truncated at ±2; initialisers divide by it.
constexpr double kTruncatedDeviation = 0.87962566103423978;

// Returns number `index` along `axis`.
Tensor nth(Tensor x, std::string_view axis, int64_t index) {
  return reduce_sum(slice(x, axis, index, index + 1), axis);
}

}  // namespace

SeqaxModel::SeqaxModel(const HParams& p) : BaseModel({.dtypes = p.dtypes}), p_(p) {
  if (dtypes().matmul != MatmulPrecision::kCompute)
    fail(
        "SeqaxModel writes its products out, in the compute dtype: got dtypes.matmul=fp8, expected "
        "compute");
  const std::map<std::string, int64_t> sizes = {{"layers", p.num_layers.get()},
                                                {"vocab", p.vocab_size.get()},
                                                {"embed", p.model_dims.get()},
                                                {"heads", p.num_heads.get()},
                                                {"kv", 2},
                                                {"kv_heads", p.num_kv_heads.get()},
                                                {"head_dim", p.dims_per_head.get()},
                                                {"mlp", p.hidden_dims.get()}};
  const auto declare = [&](std::string_view name, std::string_view layout, const WeightInit& init,
                           const std::vector<std::string>& inputs = {}) {
    std::vector<Axis> axes = parse_axes(layout);
    for (Axis& axis : axes) axis.size = sizes.at(axis.name);
    return weight(name, std::move(axes), init, {inputs, {}});
  };
  const WeightInit normal{InitKind::kGaussian, 1.0};
  const WeightInit by_inputs{InitKind::kTruncatedGaussianSqrtFanIn, 1.0 / kTruncatedDeviation};
  const WeightInit query{InitKind::kTruncatedGaussianSqrtFanIn,
                         by_inputs.scale / std::sqrt(static_cast<double>(p.dims_per_head.get()))};

  embed_ = declare("embed", "vocab/mdl embed/data", normal);
  unembed_ = declare("unembed", "vocab/mdl embed/data", by_inputs, {"embed"});
  ln1_ = declare("ln1", "layers embed/mdl/data", ones());
  ln2_ = declare("ln2", "layers embed/mdl/data", ones());
  w_q_ = declare("w_q", "layers embed/data heads/mdl head_dim", query, {"embed"});
  w_kv_ = declare("w_kv", "layers kv embed/data kv_heads/mdl head_dim", by_inputs, {"embed"});
  w_o_ = declare("w_o", "layers embed/data heads/mdl head_dim", by_inputs, {"heads", "head_dim"});
  w_gate_ = declare("w_gate", "layers embed/data mlp/mdl", by_inputs, {"embed"});
  w_up_ = declare("w_up", "layers embed/data mlp/mdl", by_inputs, {"embed"});
  w_down_ = declare("w_down", "layers embed/data mlp/mdl", by_inputs, {"mlp"});
  final_norm_ = declare("final_norm", "embed/mdl/data", ones());
}

Tensor SeqaxModel::gathered(Weight weight, std::string_view layout, DType dtype) const {
  Tensor value = stored(weight, dtype);
  if (value.has("layers")) value = loop_slice(value);
  return reshard(cast_weight(value, dtype, dtypes().reduce), layout);
}

Tensor SeqaxModel::loop_body(Tensor x, Tensor segment_ids) const {
  // Attention.
  const Tensor ln1 = gathered(ln1_, "embed", DType::kF32);
  const Tensor gx = reshard(x, "batch/data seq embed");
  const Tensor nx = rms_norm(gx, ln1, "embed", kEpsilon);
  const Tensor w_q = gathered(w_q_, "embed heads/mdl head_dim");
  Tensor q = save_for_backward(
      einsum("batch/data seq embed, embed heads/mdl head_dim -> batch/data seq heads/mdl head_dim",
             nx, w_q),
      "q");
  const Tensor w_kv = gathered(w_kv_, "kv embed kv_heads/mdl head_dim");
  const Tensor kv = einsum(
      "batch/data seq embed, kv embed kv_heads/mdl head_dim -> kv batch/data seq kv_heads/mdl "
      "head_dim",
      nx, w_kv);
  Tensor k = save_for_backward(nth(kv, "kv", 0), "k");
  const Tensor v = save_for_backward(nth(kv, "kv", 1), "v");
  DecodeCache* const cache = FpropScope::current().cache();
  const Tensor positions = cache != nullptr
                               ? reshard(cache->positions(x.size("seq")), "batch/data seq")
                               : iota({"seq", x.size("seq"), {}});
  q = rotary(q, positions, "head_dim", p_.rope_max_timescale);
  k = rotary(k, positions, "head_dim", p_.rope_max_timescale);
  const Tensor context =
      cache != nullptr ? cached_attention(q, cache->extended("key", k), cache->extended("value", v),
                                          cache->starts_like(q), {})
                       : attention(q, rename(k, "seq", "key_seq"), rename(v, "seq", "key_seq"),
                                   {.segment_ids = segment_ids});
  const Tensor w_o = gathered(w_o_, "embed heads/mdl head_dim");
  const Tensor attn_out = einsum(
      "batch/data seq heads/mdl head_dim, embed heads/mdl head_dim -> batch/data seq embed + "
      "sum(mdl)",
      context, w_o);
  x = save_for_backward(x + reshard(attn_out, "batch/data seq embed/mdl"), "attn_residual");

  // Feed-forward.
  const Tensor ln2 = save_for_backward(gathered(ln2_, "embed", DType::kF32), "ln2");
  const Tensor gx2 = reshard(x, "batch/data seq embed");
  const Tensor nx2 = rms_norm(gx2, ln2, "embed", kEpsilon);
  const Tensor w_gate = gathered(w_gate_, "embed mlp/mdl");
  const Tensor gate_proj = save_for_backward(
      einsum("batch/data seq embed, embed mlp/mdl -> batch/data seq mlp/mdl", nx2, w_gate),
      "gate_proj");
  const Tensor w_up = gathered(w_up_, "embed mlp/mdl");
  const Tensor up_proj = save_for_backward(
      einsum("batch/data seq embed, embed mlp/mdl -> batch/data seq mlp/mdl", nx2, w_up),
      "up_proj");
  const Tensor w_down = gathered(w_down_, "embed mlp/mdl");
  const Tensor ffn_out =
      einsum("batch/data seq mlp/mdl, embed mlp/mdl -> batch/data seq embed + sum(mdl)",
             silu(gate_proj) * up_proj, w_down);
  return x + reshard(ffn_out, "batch/data seq embed/mdl");
}

Tensor SeqaxModel::blocks(Tensor ids, Tensor segment_ids) const {
  // Initial embedding lookup.
  ids = reshard(ids, "batch/data seq");
  const Tensor embed = gathered(embed_, "vocab/mdl embed");
  const Tensor rows = gather(embed, ids, "vocab");  // batch/data seq embed + sum(mdl)
  const Tensor x = reshard(rows, "batch/data seq embed/mdl");

  // Transformer blocks.
  const RepeatResult blocks =
      repeat("layers", p_.num_layers.get(), {x}, {},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
               return {{loop_body(carries[0], segment_ids)}, {}};
             });
  return reshard(blocks.carries[0], "batch/data seq embed");
}

Tensor SeqaxModel::fprop_next_logits(const Features& features) const {
  const Tensor gx = blocks(features.get("ids"), {});
  const Tensor x = at_last(gx, reshard(features.get("last"), "batch/data"));
  const Tensor nx = rms_norm(x, gathered(final_norm_, "embed", DType::kF32), "embed", kEpsilon);
  const Tensor unembed = gathered(unembed_, "vocab/mdl embed");
  return cast(einsum("batch/data embed, vocab/mdl embed -> batch/data vocab/mdl", nx, unembed),
              DType::kF32);
}

Tensor SeqaxModel::fprop_logits(const Features& features) const {
  const Tensor segment_ids = reshard(features.get("segment_ids"), "batch/data seq");
  const Tensor gx = blocks(features.get("ids"), segment_ids);

  // Final norm and output projection.
  const Tensor nx = rms_norm(gx, gathered(final_norm_, "embed", DType::kF32), "embed", kEpsilon);
  const Tensor unembed = gathered(unembed_, "vocab/mdl embed");
  return cast(
      einsum("batch/data seq embed, vocab/mdl embed -> batch/data seq vocab/mdl", nx, unembed),
      DType::kF32);
}

ModelOutput SeqaxModel::fprop(const Features& features) const {
  const Tensor labels = reshard(features.get("labels"), "batch/data seq");
  const Tensor weights = reshard(features.get("weights"), "batch/data seq");
  return weighted_output(cross_entropy(fprop_logits(features), labels, "vocab"), weights);
}

}  // namespace tessera
