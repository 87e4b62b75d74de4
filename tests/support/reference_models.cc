// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_models.h"

#include <cmath>

#include "layers/attention/dot_product_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"

namespace tessera {
namespace {

struct Sizes {
  int64_t vocab, embed, layers, heads, hidden, seq;
};

WeightInit gaussian(double scale) { return {InitKind::kGaussian, scale}; }

// GPT-2 (Radford et al., 2019). The initial scale of residual projections is divided by the square
// root of their number.
LanguageModel::HParams gpt2(const Sizes& sizes) {
  const WeightInit residual_init =
      gaussian(0.02 / std::sqrt(2.0 * static_cast<double>(sizes.layers)));
  const TransformerBlock::HParams block{
      .attention_tpl = DotProductAttention::HParams{.use_bias = true, .output_init = residual_init},
      .ffn_tpl =
          FeedForward::HParams{
              .activation_tpl = GELU::HParams{}, .use_bias = true, .down_init = residual_init},
      .norm_tpl = LayerNorm::HParams{.epsilon = 1e-5}};
  return {
      .lm_tpl = TransformerLm::HParams{
          .vocab_size = sizes.vocab,
          .model_dims = sizes.embed,
          .num_layers = sizes.layers,
          .num_heads = sizes.heads,
          .hidden_dims = sizes.hidden,
          .packed_input = false,
          .position_emb_tpl = TrainablePositionalEmbedding::HParams{.max_seq_length = sizes.seq},
          .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
          .final_ln_tpl = LayerNorm::HParams{.epsilon = 1e-5},
          .params_init = gaussian(0.02)}};
}

// Llama (Touvron et al., 2023).
LanguageModel::HParams llama(const Sizes& sizes, int64_t kv_heads, int64_t head_dim,
                             double epsilon = 1e-6) {
  const TransformerBlock::HParams block{
      .attention_tpl =
          DotProductAttention::HParams{.num_kv_heads = kv_heads,
                                       .dims_per_head = head_dim,
                                       .rotary_tpl = RotaryPositionEmbedding::HParams{}},
      .ffn_tpl =
          FeedForward::HParams{.activation_tpl = SiLU::HParams{}, .use_gated_activation = true},
      .norm_tpl = RmsNorm::HParams{.epsilon = epsilon}};
  return {.lm_tpl = TransformerLm::HParams{
              .vocab_size = sizes.vocab,
              .model_dims = sizes.embed,
              .num_layers = sizes.layers,
              .num_heads = sizes.heads,
              .hidden_dims = sizes.hidden,
              .separate_embedding_tpl = Embedding::HParams{},
              .softmax_tpl = FullSoftmax::HParams{},
              .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
              .final_ln_tpl = RmsNorm::HParams{.epsilon = epsilon},
              .params_init = gaussian(0.02)}};
}

// The settings that all c4 models of Pax share, including implicit defaults.
LanguageModel::HParams pax_c4(const Sizes& sizes, Template<Activation> activation) {
  const LayerNorm::HParams norm{.direct_scale = false};
  const TransformerBlock::HParams block{
      .attention_tpl = DotProductAttention::HParams{.combine_qkv = true,
                                                    .use_per_dim_scale = true,
                                                    .logit_cap = 50.0,
                                                    .last_two_axes_fans = true},
      .ffn_tpl = FeedForward::HParams{.activation_tpl = std::move(activation), .use_bias = true},
      .norm_tpl = norm};
  const SharedEmbeddingSoftmax::HParams softmax{
      .scale_sqrt_depth = true,
      .use_bias = true,
      .loss = {.soft_cap = 30.0},
      .layer = {.params_init = gaussian(1.0 / std::sqrt(static_cast<double>(sizes.embed)))}};
  return {.lm_tpl = TransformerLm::HParams{
              .vocab_size = sizes.vocab,
              .model_dims = sizes.embed,
              .num_layers = sizes.layers,
              .num_heads = sizes.heads,
              .hidden_dims = sizes.hidden,
              .position_emb_tpl = PositionalEmbedding::HParams{},
              .softmax_tpl = softmax,
              .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block},
              .final_ln_tpl = norm,
              .params_init = WeightInit{InitKind::kXavier, 1.0}}};
}

constexpr Sizes kSmall = {SmallSizes::kVocab, SmallSizes::kEmbed,     SmallSizes::kLayers,
                          SmallSizes::kHeads, 4 * SmallSizes::kEmbed, SmallSizes::kSeq};

}  // namespace

LanguageModel::HParams small_gpt2() { return gpt2(kSmall); }

LanguageModel::HParams small_llama() {
  Sizes sizes = kSmall;
  sizes.hidden = 40;
  return llama(sizes, 2, 8);
}

LanguageModel::HParams small_mtp() {
  Sizes sizes = kSmall;
  sizes.embed = sizes.hidden = 8;
  sizes.layers = 1;
  LanguageModel::HParams p = llama(sizes, 2, 2);
  auto& lm = p.lm_tpl.as<TransformerLm::HParams>();
  lm.mtp_tpl = MultiTokenPrediction::HParams{
      .num_tokens = 2,
      .block_tpl = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>().block_tpl};
  return p;
}

LanguageModel::HParams small_pax() {
  LanguageModel::HParams p = pax_c4(kSmall, ReLU::HParams{});
  TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
  const TransformerBlock::HParams block =
      lm.stacked_transformer_tpl.as<Repeated::HParams>().block_tpl.as<TransformerBlock::HParams>();
  lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  SoftmaxOptions& loss = lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss;
  loss.label_smoothing = 0.1;
  loss.z_loss = 1e-2;
  return p;
}

LanguageModel::HParams gpt2_124m() { return gpt2({50257, 768, 12, 12, 3072, 1024}); }

LanguageModel::HParams llama2_7b() {
  return llama({32000, 4096, 32, 32, 11008, 4096}, 32, 128, 1e-5);
}

LanguageModel::HParams c4_spmd_1b() {
  return pax_c4({32000, 2560, 13, 20, 4 * 2560, 1024}, GELU::HParams{});
}

LanguageModel::HParams seqax_84m() {
  LanguageModel::HParams p = llama({32768, 512, 8, 8, 4096, 1024}, 8, 128);
  TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
  lm.segment_positions = false;  // Rotary positions continue across documents of a packed row.
  // Truncated normals with variance 1 / fan-in; a factor corrects the variance lost by truncation.
  const double restored = 1.0 / 0.87962566103423978;
  lm.params_init = WeightInit{InitKind::kTruncatedGaussianSqrtFanIn, restored};
  lm.separate_embedding_tpl.as<Embedding::HParams>().layer.params_init = gaussian(1.0);
  TransformerBlock::HParams& block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>()
                                         .block_tpl.as<TransformerBlock::HParams>();
  DotProductAttention::HParams& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  attention.query_scale = 1.0;  // The scale is in the initial query weights instead.
  attention.query_init =
      WeightInit{InitKind::kTruncatedGaussianSqrtFanIn, restored / std::sqrt(128.0)};
  lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  return p;
}

}  // namespace tessera
