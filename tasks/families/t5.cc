// SPDX-License-Identifier: Apache-2.0
// T5 (Raffel et al., 2020) and its version 1.1, encoder-decoder models: scores are not scaled but
// biased by distance, with biases that all layers of a stack share. The first version has one table
// for tokens and their scores, and scales these; version 1.1 has two, and gated feed-forwards.
#include <cmath>

#include "tasks/families/parts.h"

namespace tessera {
namespace {

constexpr std::string_view kGated = "gated-", kGatedGelu = "gated-gelu";

void bind_t5_norm(ConfigMembers& config, Template<UnaryLayer>& norm_tpl, std::string_view path) {
  config.positive("layer_norm_epsilon", config.part<RmsNorm::HParams>(norm_tpl, path).epsilon,
                  1e-6);
}

// "gated-gelu" is the approximation by tanh.
void bind_t5_feed_forward(ConfigMembers& config, LayeredLm& model, FeedForward::HParams& ffn) {
  if (!config.reads()) model.lm.hidden_dims = ffn.hidden_dims.get_or(1);
  config.size("d_ff", model.lm.hidden_dims, 2048, ConfigMembers::kMostHidden);
  ffn.hidden_dims = model.lm.hidden_dims.get();
  config.rate("dropout_rate", ffn.dropout_rate, 0.1);
  std::string projection;
  if (!config.reads()) {
    projection = config.activation_name(ffn.activation_tpl);
    if (ffn.use_gated_activation) projection = fmt::format("{}{}", kGated, projection);
    if (projection == "gated-gelu_new") projection = kGatedGelu;
  }
  config.text("feed_forward_proj", projection, "relu");
  if (!config.reads()) return;
  ffn.use_gated_activation = projection.starts_with(kGated);
  if (projection == kGatedGelu) projection = "gated-gelu_new";
  if (ffn.use_gated_activation) projection = projection.substr(kGated.size());
  ffn.activation_tpl = activation_named(projection, config.where());
}

DotProductAttention::HParams& bind_t5_attention(ConfigMembers& config, const LayeredLm& model,
                                                Template<SequenceLayer>& attention_tpl,
                                                std::string_view path) {
  auto& attention = config.part<DotProductAttention::HParams>(attention_tpl, path);
  attention.num_heads = model.lm.num_heads.get();
  attention.num_kv_heads = model.lm.num_heads.get();
  config.size("d_kv", attention.dims_per_head, 64);
  attention.query_scale = 1.0;
  config.rate("dropout_rate", attention.dropout_rate, 0.1);
  return attention;
}

// The biases of a stack are of its first layer in their files.
void bind_t5_biases(ConfigMembers& config, DotProductAttention::HParams& attention,
                    std::string_view id, bool bidirectional) {
  auto& bias = config.part<RelativePositionBias::HParams>(attention.position_bias_tpl,
                                                          "attention_tpl.position_bias_tpl");
  config.size("relative_attention_num_buckets", bias.num_buckets, 32);
  config.size("relative_attention_max_distance", bias.max_distance, 128);
  bias.bidirectional = bidirectional;
  bias.layer.shared_id = id;
}

void bind_t5_layer(ConfigMembers& config, LayeredLm& model, TransformerBlock::HParams& layer,
                   bool decodes) {
  bind_t5_norm(config, layer.norm_tpl, "norm_tpl");
  auto& attention = bind_t5_attention(config, model, layer.attention_tpl, "attention_tpl");
  attention.causal = decodes;
  bind_t5_biases(config, attention, decodes ? "decoder_bias" : "encoder_bias", !decodes);
  bind_t5_feed_forward(config, model, config.part<FeedForward::HParams>(layer.ffn_tpl, "ffn_tpl"));
  config.rate("dropout_rate", layer.residual_dropout_rate, 0.1);
  if (!decodes) return;
  auto& cross = bind_t5_attention(config, model, layer.cross_attention_tpl, "cross_attention_tpl");
  cross.causal = false;
  cross.cross = true;
}

// transformers 5 writes tie_word_embeddings=true in any case, and scale_decoder_outputs; the head
// is tied if its tensor is not in the files.
void bind_t5_head(ConfigMembers& config, LayeredLm& model) {
  bind_head(config, model, true);
  const bool tied = !model.has_own_head();
  bool scales = softmax_options(model).multiplier != 1.0;
  config.flag("scale_decoder_outputs", scales, tied);
  if (!config.reads()) return;
  model.lm.softmax_tpl = SharedEmbeddingSoftmax::HParams{};
  model.lm.separate_embedding_tpl = Template<Embedding>();
  if (config.has_head().value_or(!tied || !scales)) {
    model.lm.softmax_tpl = FullSoftmax::HParams{};
    model.lm.separate_embedding_tpl = Embedding::HParams{};
  }
  softmax_options(model).multiplier =
      scales ? 1.0 / std::sqrt(static_cast<double>(model.lm.model_dims.get())) : 1.0;
}

void t5_members(ConfigMembers& config, LayeredLm& model) {
  TransformerLm::HParams& lm = model.lm;
  auto& encoder = config.part<TransformerEncoder::HParams>(lm.encoder_tpl, "encoder_tpl");
  int64_t encoder_layers = std::ssize(model.encoder.layers), layers = std::ssize(model.layers);
  config.size("num_layers", encoder_layers, 6, kMostLayers);
  config.size("num_decoder_layers", layers, encoder_layers, kMostLayers);
  model.encoder.layers.resize(static_cast<size_t>(encoder_layers));
  model.layers.resize(static_cast<size_t>(layers));
  config.size("vocab_size", lm.vocab_size, 32128, ConfigMembers::kMostTokens);
  config.size("d_model", lm.model_dims, 512);
  config.size("num_heads", lm.num_heads, 8);
  bind_t5_head(config, model);
  bind_t5_norm(config, lm.final_ln_tpl, "final_ln_tpl");
  bind_t5_norm(config, encoder.final_ln_tpl, "encoder_tpl.final_ln_tpl");
  for (TransformerBlock::HParams& layer : model.encoder.layers)
    bind_t5_layer(config, model, layer, false);
  for (TransformerBlock::HParams& layer : model.layers) bind_t5_layer(config, model, layer, true);
  config.rate("dropout_rate", encoder.dropout_rate, 0.1);
  config.rate("dropout_rate", lm.embedding_dropout_rate, 0.1);
  config.number("decoder_start_token_id", encoder.decoder_start_id, 0);
  config.add("is_encoder_decoder", "true");
  config.add("pad_token_id", std::to_string(encoder.decoder_start_id));  // A default is needed.
  config.ignore({"classifier_dropout", "dense_act_fn", "initializer_factor", "is_gated_act",
                 "n_positions", "output_past"});
}

// Rows of one stack's blocks; sublayer `number` of their files is a feed-forward.
std::vector<WeightRow> block_rows(const std::string& stack, std::string_view prefix, int number) {
  std::vector<WeightRow> rows;
  const auto add = [&](std::string_view theirs, std::string_view axes, std::string_view ours,
                       std::string_view with = "") {
    rows.push_back({fmt::format("{}.block.{{}}.layer.{}", stack, theirs), axes,
                    fmt::format("{}{}", prefix, ours), with});
  };
  const auto add_attention = [&](std::string_view theirs, std::string_view ours) {
    add(fmt::format("{}.q.weight", theirs), "heads head_dim, embed", fmt::format("{}.query", ours));
    add(fmt::format("{}.k.weight", theirs), "kv_heads head_dim, embed",
        fmt::format("{}.key", ours));
    add(fmt::format("{}.v.weight", theirs), "kv_heads head_dim, embed",
        fmt::format("{}.value", ours));
    add(fmt::format("{}.o.weight", theirs), "embed, heads head_dim",
        fmt::format("{}.output", ours));
  };
  add_attention("0.SelfAttention", "attention");
  add("0.layer_norm.weight", "embed", "attention_norm.scale");
  if (number == 2) {
    add_attention("1.EncDecAttention", "cross_attention");
    add("1.layer_norm.weight", "embed", "cross_attention_norm.scale");
  }
  const std::string ffn = fmt::format("{}.DenseReluDense.", number);
  add(ffn + "wi_0.weight", "mlp, embed", "ffn.gate");
  add(ffn + "wi_1.weight", "mlp, embed", "ffn.up", "ffn.gate");
  add(ffn + "wi.weight", "mlp, embed", "ffn.up");
  add(ffn + "wo.weight", "embed, mlp", "ffn.down");
  add(fmt::format("{}.layer_norm.weight", number), "embed", "ffn_norm.scale");
  return rows;
}

// Copies of the table in old files, and biases of cross-attention, which nothing reads.
bool t5_ignores(std::string_view name, const LayeredLm&) {
  return name == "encoder.embed_tokens.weight" || name == "decoder.embed_tokens.weight" ||
         name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

const FamilyRegistrar kT5{
    {.model_type = "t5",
     .architecture = "T5ForConditionalGeneration",
     .members = t5_members,
     .weights =
         joined_rows({{{"shared.weight", "vocab, embed", "embedding.w|softmax.w"},
                       {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                        "buckets, heads", "shared.encoder_bias.w"}},
                      block_rows("encoder", "encoder.", 1),
                      {{"encoder.final_layer_norm.weight", "embed", "encoder.final_ln.scale"},
                       {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                        "buckets, heads", "shared.decoder_bias.w"}},
                      block_rows("decoder", "", 2),
                      {{"decoder.final_layer_norm.weight", "embed", "final_ln.scale"},
                       {"lm_head.weight", "vocab, embed", "softmax.w"}}}),
     .is_ignored = t5_ignores}};

}  // namespace
}  // namespace tessera
