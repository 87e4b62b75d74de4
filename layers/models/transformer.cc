// SPDX-License-Identifier: Apache-2.0
#include "layers/models/transformer.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/dropout.h"
#include "layers/summaries.h"

namespace tessera {

REGISTER_TEMPLATE(SequenceLayer, TransformerBlock);
REGISTER_TEMPLATE(SequenceLayer, StackedTransformer);
REGISTER_TEMPLATE(SequenceLayer, Repeated);
REGISTER_TEMPLATE(SequenceLayer, LayerSequence);

TransformerBlock::TransformerBlock(const HParams& p)
    : policy_(p.norm_policy), parallel_(p.parallel), multiplier_(p.residual_multiplier) {
  if (parallel_ && policy_ == NormPolicy::kPost)
    fail("parallel=true with norm_policy=post: a norm after the sum would be applied twice");
  const bool before = policy_ == NormPolicy::kPre || policy_ == NormPolicy::kPrimerHybrid;
  if (!before && !p.use_attention_norm)
    fail("use_attention_norm=false with a norm_policy that has no norm before attention");
  around_attention_ = residual_around("attention", p, before && p.use_attention_norm);
  attention_ = child("attention", p.attention_tpl);
  if (p.cross_attention_tpl.has()) {
    if (parallel_) fail("parallel=true with cross_attention_tpl: it reads the result of attention");
    around_cross_attention_ = residual_around("cross_attention", p, before);
    cross_attention_ = child("cross_attention", p.cross_attention_tpl);
  }
  around_ffn_ = residual_around("ffn", p, before);
  ffn_ = child("ffn", p.ffn_tpl);
}

TransformerBlock::Residual TransformerBlock::residual_around(std::string_view sublayer,
                                                             const HParams& p, bool before) {
  const bool after = policy_ != NormPolicy::kPre;
  Residual around{.name = std::string(sublayer)};
  if (before) around.pre_norm = child(fmt::format("{}_norm", sublayer), p.norm_tpl);
  if (after) around.post_norm = child(fmt::format("{}_post_norm", sublayer), p.norm_tpl);
  around.dropout = child<UnaryLayer>(fmt::format("{}_dropout", sublayer),
                                     Dropout::HParams{.rate = p.residual_dropout_rate});
  return around;
}

// What is added to x.
template <typename F>
Tensor TransformerBlock::branch(const Residual& around, const Tensor& x, F sublayer) const {
  Tensor y = sublayer(around.pre_norm ? around.pre_norm(x) : x);
  const bool normalise_branch =
      policy_ == NormPolicy::kPostSkip || policy_ == NormPolicy::kPrimerHybrid;
  if (normalise_branch) y = around.post_norm(y);
  y = around.dropout(y);
  add_activation(around.name, y);
  return multiplier_ == 1.0 ? y : y * multiplier_;
}

template <typename F>
Tensor TransformerBlock::with_residual(const Residual& around, Tensor x, F sublayer) const {
  const Tensor y = x + branch(around, x, sublayer);
  return policy_ == NormPolicy::kPost ? around.post_norm(y) : y;
}

Tensor TransformerBlock::fprop(Tensor x, const SequenceInfo& sequence) const {
  x = place(x, "residual");
  const auto attend = [&](Tensor input) { return attention_(input, sequence); };
  const auto feed_forward = [&](Tensor input) { return ffn_(input); };
  if (parallel_) {
    const Tensor attended = branch(around_attention_, x, attend);
    x = x + attended + branch(around_ffn_, x, feed_forward);
  } else {
    x = with_residual(around_attention_, x, attend);
    if (cross_attention_)
      x = with_residual(around_cross_attention_, x,
                        [&](Tensor input) { return cross_attention_(input, sequence); });
    x = with_residual(around_ffn_, x, feed_forward);
  }
  return save_for_backward(x, "transformer_layer_out");
}

StackedTransformer::StackedTransformer(const HParams& p) {
  for (int64_t i = 0; i < p.num_layers.get(); ++i)
    x_layers_.push_back(child(fmt::format("x_layers[{}]", i), p.block_tpl));
}

Tensor StackedTransformer::fprop(Tensor x, const SequenceInfo& sequence) const {
  for (const auto& layer : x_layers_) {
    const RematScope region;
    x = layer(x, sequence);
  }
  return x;
}

Repeated::Repeated(const HParams& p) : num_layers_(p.num_layers.get()) {
  x_layers_ = child("x_layers[]", p.block_tpl, num_layers_);
}

Tensor Repeated::fprop(Tensor x, const SequenceInfo& sequence) const {
  const RepeatResult result =
      repeat(kLayersAxis, num_layers_, {place(x, "residual")}, {},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
               const Tensor input = save_for_backward(carries[0], "iteration_input");
               return {{x_layers_(input, sequence)}, {}};
             });
  return result.carries[0];
}

LayerSequence::LayerSequence(const HParams& p) {
  if (p.layers_tpl.empty()) fail("LayerSequence: layers_tpl is empty, expected at least one layer");
  // Without brackets: an index in a path is the place in a stack, and selects random numbers.
  for (size_t i = 0; i < p.layers_tpl.size(); ++i)
    layers_.push_back(child(fmt::format("part{}", i), p.layers_tpl[i]));
}

Tensor LayerSequence::fprop(Tensor x, const SequenceInfo& sequence) const {
  for (const auto& layer : layers_) x = layer(x, sequence);
  return x;
}

}  // namespace tessera
