// SPDX-License-Identifier: Apache-2.0
// One transformer layer: attention and feed-forward, each with norm, residual dropout and residual.
#pragma once

#include <array>
#include <memory>

#include "core/hparams/template.h"
#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/feed_forward.h"
#include "layers/layer_norm.h"
#include "layers/sequence_layer.h"

namespace tessera {

// Where a sublayer f is normalised (Pax's names).
enum class NormPolicy {
  kPre,           // x + f(norm(x)).
  kPost,          // norm(x + f(x)).
  kPostSkip,      // x + norm(f(x)).
  kPrimerHybrid,  // x + norm₂(f(norm₁(x))).
};

constexpr std::array<EnumName<NormPolicy>, 4> enum_names(NormPolicy) {
  using enum NormPolicy;
  return {
      {{kPre, "pre"}, {kPost, "post"}, {kPostSkip, "post_skip"}, {kPrimerHybrid, "primer_hybrid"}}};
}

class TransformerBlock final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = TransformerBlock;
    static constexpr std::string_view kName = "TransformerBlock";
    NormPolicy norm_policy = NormPolicy::kPre;
    Template<SequenceLayer> attention_tpl = DotProductAttention::HParams{};
    Template<UnaryLayer> ffn_tpl = FeedForward::HParams{};
    Template<UnaryLayer> norm_tpl = LayerNorm::HParams{};
    double residual_dropout_rate = 0.0;
    FIELDS(norm_policy, attention_tpl, ffn_tpl, norm_tpl, residual_dropout_rate)
  };
  explicit TransformerBlock(const HParams& p);

  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;

 private:
  // One sublayer with what surrounds it.
  struct Sublayer {
    std::unique_ptr<UnaryLayer> pre_norm, post_norm, dropout;
  };
  Sublayer surroundings(std::string_view name, const HParams& p);
  template <typename F>
  Tensor with_residual(const Sublayer& around, Tensor x, F sublayer) const;

  NormPolicy policy_;
  std::unique_ptr<SequenceLayer> attention_;
  std::unique_ptr<UnaryLayer> ffn_;
  Sublayer around_attention_, around_ffn_;
};

extern template class HolderOf<SequenceLayer, TransformerBlock::HParams>;

}  // namespace tessera
