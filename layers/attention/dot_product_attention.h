// SPDX-License-Identifier: Apache-2.0
// Multi-head self-attention with grouped queries (GQA; Ainslie et al., 2023): projections, rotary
// embedding, scaling, and the fused attention op. Norm and residual belong to the block around it.
// Context parallelism: rules of the role "attention" exchange a split of the sequence for one of
// the heads; without them a split sequence is attended to in a ring of its devices.
#pragma once

#include "core/hparams/template.h"
#include "core/ops/attention.h"
#include "layers/attention/position_bias.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"

namespace tessera {

class DotProductAttention final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = DotProductAttention;
    Required<int64_t> model_dims;
    Required<int64_t> num_heads;
    Field<int64_t> num_kv_heads;   // Divides num_heads; num_heads unless set.
    Field<int64_t> dims_per_head;  // model_dims / num_heads unless set.
    bool causal = true;
    bool cross = false;              // Keys and values are an encoder's tokens (TransformerBlock).
    bool combine_qkv = false;        // One weight ["embed qkv heads head_dim"]; not with GQA.
    bool use_bias = false;           // Adds biases to queries, keys and values.
    Field<bool> use_output_bias;     // use_bias unless set.
    Field<double> query_scale;       // Multiplies q·k; 1/√dims_per_head unless set.
    bool use_per_dim_scale = false;  // A learned factor for each dimension of the query (Pax).
    double logit_cap = 0.0;          // If > 0: cap·tanh(score/cap). Pax: atten_logit_cap.
    // A token attends to this many tokens, itself and those before it; without `causal` also to as
    // many after it. Unset: to all.
    Field<int64_t> window;
    // A learned score for each head, without a value, in the denominator of the softmax: a head may
    // attend to nothing (gpt-oss). extra_logit: the same score for all heads, which is not learned
    // (Pax: attention_extra_logit).
    bool use_sinks = false;
    Field<double> extra_logit;
    // Multiplies the output of each head by σ(x·gate) (Qiu et al., 2025, arXiv 2505.06708).
    bool use_output_gate = false;
    double dropout_rate = 0.0;  // For probabilities; if > 0, training stores all scores.
    Template<RotaryPositionEmbedding> rotary_tpl;  // Unset: no rotary embedding.
    Template<BasePositionBias> position_bias_tpl;  // If set, all scores are stored, as for dropout.
    Template<UnaryLayer> query_norm_tpl;           // Norm over head_dim; unset: none.
    Template<UnaryLayer> key_norm_tpl;
    // Fans of the initialisers. false: embed in, heads·head_dim out (for the output projection the
    // reverse). true: the last two axes times all others, Pax's default, which makes Xavier's range
    // up to 15 times smaller.
    bool last_two_axes_fans = false;
    LayerHParams layer;
    Field<WeightInit> query_init;   // params_init unless set.
    Field<WeightInit> output_init;  // params_init unless set.
    FIELDS(About(model_dims, kSize), About(num_heads, kSize), About(num_kv_heads, kSize),
           About(dims_per_head, kSize), causal, cross, combine_qkv, use_bias, use_output_bias,
           query_scale, use_per_dim_scale, About(logit_cap, kNotNegative), About(window, kSize),
           use_sinks, extra_logit, use_output_gate, About(dropout_rate, kRate), rotary_tpl,
           position_bias_tpl, query_norm_tpl, key_norm_tpl, last_two_axes_fans, layer, query_init,
           output_init)
  };
  explicit DotProductAttention(const HParams& p);

 private:
  struct Heads {
    Tensor query;       // ["batch seq heads head_dim"]
    Tensor key, value;  // ["batch seq kv_heads head_dim"]
  };
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;
  void declare_projections(const HParams& p);
  Heads combined_projection(Tensor x) const;
  // Queries of x, keys and values of `source`.
  Heads separate_projections(Tensor x, Tensor source) const;
  Tensor scaled_query(Tensor query) const;
  Heads as_attended(Heads heads) const;
  Heads projected(Tensor x, const SequenceInfo& sequence) const;
  AttentionOptions options_for(const Tensor& x, const SequenceInfo& sequence) const;
  Tensor sinks_like(const Tensor& query) const;
  Tensor bias_of(const Tensor& query, const Tensor& positions, const Axis& key_seq) const;
  Tensor attend(const Heads& heads, const AttentionOptions& options) const;
  Tensor attend_to_cache(const Heads& heads, const AttentionOptions& options,
                         DecodeCache& cache) const;

  HParams p_;
  int64_t head_dim_ = 0;
  Weight query_, key_, value_, combined_, gate_, output_;
  Weight gate_bias_, query_bias_, key_bias_, value_bias_, combined_bias_, output_bias_;
  Weight per_dim_scale_, sinks_;
  ChildLayer<RotaryPositionEmbedding> rotary_;
  ChildLayer<BasePositionBias> position_bias_;
  ChildLayer<UnaryLayer> dropout_, query_norm_, key_norm_;
};

extern template class HolderOf<SequenceLayer, DotProductAttention::HParams>;

}  // namespace tessera
