// SPDX-License-Identifier: Apache-2.0
// TransformerBlock: attention, maybe to an encoder, and feed-forward, each with norm, residual
// dropout and residual. Two stacks of a block with the same results: StackedTransformer is
// unrolled, Repeated loops. And LayerSequence, for models whose blocks differ.
#pragma once

#include <vector>

#include "core/hparams/template.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/layer.h"
#include "layers/norms/norms.h"

namespace tessera {

// The place of the norms around a sublayer f (Pax's names).
enum class NormPolicy {
  kPre,           // x + f(norm(x)).
  kPost,          // norm(x + f(x)).
  kPostSkip,      // x + norm(f(x)).
  kPrimerHybrid,  // x + norm₂(f(norm₁(x))).
};

// Repeated plans one layer for all, and its weights are one stack.
inline constexpr FieldInfo kLayerCount{.min = 1, .max = 1 << 16};

class TransformerBlock final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = TransformerBlock;
    NormPolicy norm_policy = NormPolicy::kPre;
    Template<SequenceLayer> attention_tpl = DotProductAttention::HParams{};
    // Between attention and feed-forward: attention to an encoder's output; unset: none.
    Template<SequenceLayer> cross_attention_tpl;
    Template<UnaryLayer> ffn_tpl = FeedForward::HParams{};
    Template<UnaryLayer> norm_tpl = LayerNorm::HParams{};
    // Both sublayers read the block's input, and both results are added to it (GPT-NeoX).
    bool parallel = false;
    bool use_attention_norm = true;  // false: no norm before attention (ModernBERT's first block).
    double residual_multiplier = 1.0;  // Multiplies what each sublayer adds (Granite).
    double residual_dropout_rate = 0.0;
    FIELDS(norm_policy, attention_tpl, cross_attention_tpl, ffn_tpl, norm_tpl, parallel,
           use_attention_norm, About(residual_multiplier, kPositive),
           About(residual_dropout_rate, kRate))
  };
  explicit TransformerBlock(const HParams& p);

 private:
  // The norms and dropout around one sublayer.
  struct Residual {
    std::string name;  // The sublayer's.
    ChildLayer<UnaryLayer> pre_norm, post_norm, dropout;
  };
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;
  Residual residual_around(std::string_view sublayer, const HParams& p, bool before);
  template <typename F>
  Tensor branch(const Residual& around, const Tensor& x, F sublayer) const;
  template <typename F>
  Tensor with_residual(const Residual& around, Tensor x, F sublayer) const;

  NormPolicy policy_;
  bool parallel_;
  double multiplier_;
  ChildLayer<SequenceLayer> attention_, cross_attention_;
  ChildLayer<UnaryLayer> ffn_;
  Residual around_attention_, around_cross_attention_, around_ffn_;
};

// num_layers blocks, each with its own nodes; each is one checkpointed region.
class StackedTransformer final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = StackedTransformer;
    Required<int64_t> num_layers;
    Template<SequenceLayer> block_tpl = TransformerBlock::HParams{};
    FIELDS(About(num_layers, "each has its own nodes; Repeated takes more",
                 {.min = 1, .max = 1024}),
           block_tpl)
  };
  explicit StackedTransformer(const HParams& p);

 private:
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

  std::vector<ChildLayer<SequenceLayer>> x_layers_;
};

// One block applied num_layers times with different weights, stacked on a `layers` axis: the body
// is traced once and the program loops. Bitwise equal to StackedTransformer.
class Repeated final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = Repeated;
    Required<int64_t> num_layers;
    Template<SequenceLayer> block_tpl = TransformerBlock::HParams{};
    FIELDS(About(num_layers, kLayerCount), block_tpl)
  };
  explicit Repeated(const HParams& p);

 private:
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

  int64_t num_layers_;
  ChildLayer<SequenceLayer> x_layers_;
};

// Layers one after another. Every second feed-forward layer a mixture of experts (GShard, GLaM):
// Repeated, of half as many layers, of a LayerSequence of two blocks. Some dense layers before the
// others (DeepSeek): a LayerSequence of a StackedTransformer and a Repeated.
class LayerSequence final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = LayerSequence;
    std::vector<Template<SequenceLayer>> layers_tpl;  // At least one.
    FIELDS(layers_tpl)
  };
  explicit LayerSequence(const HParams& p);

 private:
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

  std::vector<ChildLayer<SequenceLayer>> layers_;
};

extern template class HolderOf<SequenceLayer, TransformerBlock::HParams>;
extern template class HolderOf<SequenceLayer, StackedTransformer::HParams>;
extern template class HolderOf<SequenceLayer, Repeated::HParams>;
extern template class HolderOf<SequenceLayer, LayerSequence::HParams>;

}  // namespace tessera
