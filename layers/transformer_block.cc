// SPDX-License-Identifier: Apache-2.0
#include "layers/transformer_block.h"

#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"

namespace tessera {

template class HolderOf<SequenceLayer, TransformerBlock::HParams>;

namespace {

const TemplateRegistrar<SequenceLayer, TransformerBlock> kRegisterTransformerBlock;

}  // namespace

TransformerBlock::TransformerBlock(const HParams& p)
    : SequenceLayer(Field<DTypePolicy>{}), policy_(p.norm_policy) {
  around_attention_ = surroundings("attention", p);
  attention_ = child("attention", p.attention_tpl);
  around_ffn_ = surroundings("ffn", p);
  ffn_ = child("ffn", p.ffn_tpl);
}

TransformerBlock::Sublayer TransformerBlock::surroundings(std::string_view name, const HParams& p) {
  const bool before = policy_ == NormPolicy::kPre || policy_ == NormPolicy::kPrimerHybrid;
  const bool after = policy_ != NormPolicy::kPre;
  Sublayer around;
  if (before) around.pre_norm = child(fmt::format("{}_norm", name), p.norm_tpl);
  if (after) around.post_norm = child(fmt::format("{}_post_norm", name), p.norm_tpl);
  around.dropout = child(fmt::format("{}_dropout", name),
                         Template<UnaryLayer>(Dropout::HParams{.rate = p.residual_dropout_rate}));
  return around;
}

template <typename F>
Tensor TransformerBlock::with_residual(const Sublayer& around, Tensor x, F sublayer) const {
  Tensor y = sublayer(around.pre_norm ? around.pre_norm->fprop(x) : x);
  const bool normalise_branch =
      policy_ == NormPolicy::kPostSkip || policy_ == NormPolicy::kPrimerHybrid;
  if (normalise_branch) y = around.post_norm->fprop(y);
  y = x + around.dropout->fprop(y);
  return policy_ == NormPolicy::kPost ? around.post_norm->fprop(y) : y;
}

Tensor TransformerBlock::fprop(Tensor x, const SequenceInfo& sequence) const {
  const LayerScope scope(*this);
  x = place(x, "residual");
  x = with_residual(around_attention_, x,
                    [&](Tensor input) { return attention_->fprop(input, sequence); });
  x = with_residual(around_ffn_, x, [&](Tensor input) { return ffn_->fprop(input); });
  return save_for_backward(x, "transformer_layer_out");
}

}  // namespace tessera
