// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <typeinfo>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/tree.h"
#include "inputs/checked_input.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;  // In all families, for weights that are not read.

// Collects everything that prevents the conversion, to be reported together.
class Reasons {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    reasons_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void unless(bool holds, std::string_view reason) {
    if (!holds) reasons_.emplace_back(reason);
  }
  void raise() const {
    if (reasons_.empty()) return;
    fail("this model is not a GPT-2, Llama or Mixtral of transformers: {}",
         fmt::join(reasons_, "; "));
  }

 private:
  std::vector<std::string> reasons_;
};

// A norm as all families describe it.
struct Norm {
  std::string_view kind;  // "LayerNorm", …
  double epsilon = 0.0;
  bool from_zero = false;
};

Norm norm_of(const Template<UnaryLayer>& norm_tpl, std::string_view which, Reasons* reasons) {
  Norm norm{norm_tpl.name()};
  std::string axis = "embed";
  const auto describe = [&](const auto& p) {
    norm.epsilon = p.epsilon;
    norm.from_zero = !p.direct_scale;
    axis = p.axis;
  };
  if (norm_tpl.holds<LayerNorm::HParams>()) {
    describe(norm_tpl.as<LayerNorm::HParams>());
  } else if (norm_tpl.holds<RmsNorm::HParams>()) {
    describe(norm_tpl.as<RmsNorm::HParams>());
  } else {
    reasons->add("{} is {}, expected LayerNorm (GPT-2) or RmsNorm (Llama, Mixtral)", which,
                 norm_tpl.has() ? norm_tpl.name() : "unset");
  }
  if (axis != "embed") reasons->add("{} is over '{}', expected 'embed'", which, axis);
  return norm;
}

void describe_attention(const DotProductAttention::HParams& p, HfModel* model, Reasons* reasons) {
  HfConfig& config = model->config;
  config.num_heads = std::max<int64_t>(1, p.num_heads.get());  // The layer rejects less.
  config.num_kv_heads = p.num_kv_heads.get_or(config.num_heads);
  config.head_dim = p.dims_per_head.get_or(config.model_dims / config.num_heads);
  config.attention_bias = p.use_bias || p.use_output_bias.get_or(false);
  config.attention_dropout = p.dropout_rate;
  reasons->unless(p.causal, "attention_tpl.causal is false");
  reasons->unless(!p.use_per_dim_scale,
                  "attention_tpl.use_per_dim_scale: queries have a learned scale");
  reasons->unless(!p.query_norm_tpl.has() && !p.key_norm_tpl.has(),
                  "attention_tpl normalises queries or keys (query_norm_tpl, key_norm_tpl)");
  if (p.logit_cap > 0.0)
    reasons->add("attention_tpl.logit_cap is {}: scores are capped", p.logit_cap);
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (!p.use_per_dim_scale && std::abs(p.query_scale.get_or(usual) - usual) > 1e-9 * usual)
    reasons->add("attention_tpl.query_scale is {}, expected 1/√head_dim = {}", p.query_scale.get(),
                 usual);
  if (!p.rotary_tpl.has()) return;
  const auto& rotary = p.rotary_tpl.as<RotaryPositionEmbedding::HParams>();
  config.rope_factor = rotary.min_timescale;
  // The configuration holds the rounded product of the two.
  config.rope_theta =
      std::stod(fmt::format("{:.14g}", rotary.max_timescale / rotary.min_timescale));
  config.stretch = rotary.stretch.value_or(RotaryStretchHParams{});
  config.max_positions = rotary.max_positions.get_or(config.max_positions);
  model->conventions.interleaved_rotary = rotary.interleaved;
  if (config.rope_factor != 1.0 && config.stretch.factor != 1.0)
    reasons->add(
        "rotary_tpl has both min_timescale={} and a stretch; transformers supports only one of "
        "them",
        rotary.min_timescale);
  reasons->unless(config.stretch.length == std::floor(config.stretch.length),
                  "rotary_tpl.stretch.length is not a whole number");
}

void describe_activation(const Template<Activation>& activation_tpl, HfConfig* config,
                         Reasons* reasons) {
  config->activation = hf_activation_name(activation_tpl);
  if (config->activation.empty())
    reasons->add("ffn_tpl.activation_tpl is {}, which transformers does not have",
                 activation_tpl.name());
}

// transformers' loss is of the choices and scores of all layers together, and counts every choice
// of a token as one; ours is of each layer, with choices as fractions of all. They are equal if all
// layers route alike: theirs·coef = top_k·(ours of one layer)·coef.
double loss_weight_of(const HfConfig& config) {
  return config.router_loss_coef * static_cast<double>(config.experts_per_token) /
         static_cast<double>(config.num_layers);
}
double loss_coef_of(double weight, const HfConfig& config) {
  const double coef = weight * static_cast<double>(config.num_layers) /
                      static_cast<double>(std::max<int64_t>(1, config.experts_per_token));
  return std::stod(fmt::format("{:.14g}", coef));  // Without the rounding of the conversion.
}

void describe_router(const TopKRouter::HParams& p, HfConfig* config, Reasons* reasons) {
  config->experts_per_token = p.top_k;
  config->router_loss_coef = loss_coef_of(p.load_balance_weight, *config);
  config->router_jitter = p.jitter;
  if (p.scores != RouterScores::kSoftmax)
    reasons->add("router_tpl.scores is {}, expected softmax", enum_name(p.scores));
  reasons->unless(p.normalize_weights,
                  "router_tpl.normalize_weights is false; Mixtral divides the scores of the chosen "
                  "experts by their sum");
  if (p.weight_scale != 1.0)
    reasons->add("router_tpl.weight_scale is {}, expected 1", p.weight_scale);
  if (p.capacity_factor.has())
    reasons->add("router_tpl.capacity_factor is {}, expected unset; Mixtral drops no tokens",
                 p.capacity_factor.get());
  if (p.bias_rate > 0.0)
    reasons->add("router_tpl.bias_rate is {}: Mixtral's choices have no bias", p.bias_rate);
}

void describe_experts(const MoeFeedForward::HParams& p, HfConfig* config, Reasons* reasons) {
  config->hidden_dims = p.hidden_dims.get();
  config->num_experts = p.num_experts.get();
  describe_activation(p.activation_tpl, config, reasons);
  reasons->unless(p.use_gated_activation,
                  "ffn_tpl.use_gated_activation is false; Mixtral's experts are gated");
  if (p.num_shared_experts > 0)
    reasons->add("ffn_tpl.num_shared_experts is {}; Mixtral has no shared experts",
                 p.num_shared_experts);
  if (p.router_tpl.holds<TopKRouter::HParams>()) {
    describe_router(p.router_tpl.as<TopKRouter::HParams>(), config, reasons);
  } else {
    reasons->add("router_tpl is {}, expected TopKRouter", p.router_tpl.name());
  }
}

void describe_feed_forward(const Template<UnaryLayer>& ffn_tpl, HfConfig* config,
                           Reasons* reasons) {
  if (ffn_tpl.holds<MoeFeedForward::HParams>()) {
    describe_experts(ffn_tpl.as<MoeFeedForward::HParams>(), config, reasons);
  } else if (ffn_tpl.holds<FeedForward::HParams>()) {
    const auto& p = ffn_tpl.as<FeedForward::HParams>();
    config->hidden_dims = p.hidden_dims.get();
    config->mlp_bias = p.use_bias;
    describe_activation(p.activation_tpl, config, reasons);
  } else {
    reasons->add("ffn_tpl is {}, expected FeedForward, or MoeFeedForward (Mixtral)",
                 ffn_tpl.name());
  }
}

void describe_block(const TransformerBlock::HParams& p, HfModel* model, Reasons* reasons) {
  model->config.residual_dropout = p.residual_dropout_rate;
  if (p.norm_policy != NormPolicy::kPre)
    reasons->add("norm_policy is {}, expected pre", enum_name(p.norm_policy));
  if (p.attention_tpl.holds<DotProductAttention::HParams>()) {
    describe_attention(p.attention_tpl.as<DotProductAttention::HParams>(), model, reasons);
  } else {
    reasons->add("attention_tpl is {}, expected DotProductAttention", p.attention_tpl.name());
  }
  describe_feed_forward(p.ffn_tpl, &model->config, reasons);
}

// The first block of layers that are equal except that layer i = 1, 2, … divides its scores by i;
// null if they differ otherwise.
const TransformerBlock::HParams* scaled_block_of(const LayerSequence::HParams& p) {
  const TransformerBlock::HParams* first = nullptr;
  for (size_t i = 0; i < p.layers_tpl.size(); ++i) {
    if (!p.layers_tpl[i].holds<StackedTransformer::HParams>()) return nullptr;
    const auto& stack = p.layers_tpl[i].as<StackedTransformer::HParams>();
    if (stack.num_layers.get_or(0) != 1 || !stack.block_tpl.holds<TransformerBlock::HParams>())
      return nullptr;
    const auto& block = stack.block_tpl.as<TransformerBlock::HParams>();
    if (!block.attention_tpl.holds<DotProductAttention::HParams>()) return nullptr;
    const Field<double>& scale = block.attention_tpl.as<DotProductAttention::HParams>().query_scale;
    if (first == nullptr) first = &block;
    TransformerBlock::HParams expected = *first;
    auto& attention = expected.attention_tpl.as<DotProductAttention::HParams>();
    const double usual = attention.query_scale.get_or(0.0) / static_cast<double>(i + 1);
    if (!(std::abs(scale.get_or(0.0) - usual) <= 1e-9 * usual)) return nullptr;
    attention.query_scale = scale;
    if (stack.block_tpl != Template<SequenceLayer>(expected)) return nullptr;
  }
  return first;
}

// The stacked block, or null.
const TransformerBlock::HParams* block_of(const Template<SequenceLayer>& stack_tpl,
                                          HfConfig* config, Reasons* reasons) {
  if (stack_tpl.holds<LayerSequence::HParams>()) {
    const auto* const block = scaled_block_of(stack_tpl.as<LayerSequence::HParams>());
    config->inverse_layer_scale = block != nullptr;
    if (block != nullptr) return block;
  }
  const Template<SequenceLayer>* block_tpl = nullptr;
  if (stack_tpl.holds<StackedTransformer::HParams>())
    block_tpl = &stack_tpl.as<StackedTransformer::HParams>().block_tpl;
  if (stack_tpl.holds<Repeated::HParams>())
    block_tpl = &stack_tpl.as<Repeated::HParams>().block_tpl;
  if (block_tpl == nullptr) {
    reasons->add(
        "stacked_transformer_tpl is {}, expected StackedTransformer or Repeated, with equal "
        "layers, "
        "or a LayerSequence in which only query_scale differs: 1/(i·√head_dim) in layer i (GPT-2)",
        stack_tpl.name());
    return nullptr;
  }
  if (block_tpl->holds<TransformerBlock::HParams>())
    return &block_tpl->as<TransformerBlock::HParams>();
  reasons->add("block_tpl is {}, expected TransformerBlock in every layer", block_tpl->name());
  return nullptr;
}

void describe_softmax(const TransformerLm::HParams& p, HfConfig* config, Reasons* reasons) {
  config->tied = !p.separate_embedding_tpl.has();
  bool scales = false, use_bias = false;
  SoftmaxOptions options;
  if (p.softmax_tpl.holds<SharedEmbeddingSoftmax::HParams>()) {
    const auto& softmax = p.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
    scales = config->tied && softmax.scale_sqrt_depth;
    use_bias = softmax.use_bias;
    options = softmax.loss;
  } else if (p.softmax_tpl.holds<FullSoftmax::HParams>()) {
    const auto& softmax = p.softmax_tpl.as<FullSoftmax::HParams>();
    use_bias = softmax.use_bias;
    options = softmax.loss;
  } else {
    reasons->add("softmax_tpl is {}, expected SharedEmbeddingSoftmax or FullSoftmax",
                 p.softmax_tpl.name());
  }
  if (p.separate_embedding_tpl.has())
    scales = p.separate_embedding_tpl.as<Embedding::HParams>().scale_sqrt_depth;
  reasons->unless(!scales, "embeddings are multiplied by √model_dims (scale_sqrt_depth)");
  reasons->unless(!use_bias, "softmax_tpl.use_bias: the logits have a bias");
  if (options.soft_cap > 0.0)
    reasons->add("softmax_tpl.loss.soft_cap is {}: the logits are capped", options.soft_cap);
}

// Features that only GPT-2 has or lacks.
void describe_as_gpt2(const TransformerLm::HParams& p, const TransformerBlock::HParams& block,
                      const Norm& norm, HfConfig* config, Reasons* reasons) {
  config->family = HfFamily::kGpt2;
  if (norm.kind == class_name<RmsNorm::HParams>())
    reasons->add("norm_tpl is RmsNorm without rotary positions; Llama has both, GPT-2 neither");
  if (config->num_experts > 0)
    reasons->add("ffn_tpl is {} without rotary positions; Mixtral has both, GPT-2 neither",
                 block.ffn_tpl.name());
  if (p.position_emb_tpl.holds<TrainablePositionalEmbedding::HParams>()) {
    config->max_positions =
        p.position_emb_tpl.as<TrainablePositionalEmbedding::HParams>().max_seq_length.get();
  } else {
    reasons->add(
        "position_emb_tpl is {}, expected TrainablePositionalEmbedding (GPT-2), or rotary_tpl in "
        "attention (Llama, Mixtral)",
        p.position_emb_tpl.has() ? p.position_emb_tpl.name() : "unset");
  }
  if (config->num_kv_heads != config->num_heads)
    reasons->add("attention_tpl.num_kv_heads is {} of {} heads; GPT-2 has no grouped queries",
                 config->num_kv_heads, config->num_heads);
  if (config->head_dim * config->num_heads != config->model_dims)
    reasons->add("{} heads of {} dimensions do not make model_dims={}, as GPT-2 requires",
                 config->num_heads, config->head_dim, config->model_dims);
  if (block.ffn_tpl.holds<FeedForward::HParams>())
    reasons->unless(!block.ffn_tpl.as<FeedForward::HParams>().use_gated_activation,
                    "ffn_tpl.use_gated_activation: GPT-2's feed-forward has no gate");
}

// Features that only Llama and Mixtral have or lack.
void describe_as_llama(const TransformerLm::HParams& p, const TransformerBlock::HParams& block,
                       const Norm& norm, HfConfig* config, Reasons* reasons) {
  const bool has_experts = block.ffn_tpl.holds<MoeFeedForward::HParams>();
  config->family = has_experts ? HfFamily::kMixtral : HfFamily::kLlama;
  if (has_experts && config->attention_bias)
    reasons->add("attention_tpl.use_bias or use_output_bias is true; Mixtral has no biases");
  if (norm.kind == class_name<LayerNorm::HParams>())
    reasons->add(
        "norm_tpl is LayerNorm with rotary positions; GPT-2 has only the first, Llama only the "
        "second");
  reasons->unless(!config->inverse_layer_scale,
                  "layers have different query_scale; Llama's have one");
  if (p.position_emb_tpl.has())
    reasons->add("position_emb_tpl is {} beside rotary positions; Llama has only the latter",
                 p.position_emb_tpl.name());
  if (config->model_dims % config->num_heads != 0)
    reasons->add("num_heads={} does not divide model_dims={}; transformers requires it",
                 config->num_heads, config->model_dims);
  if (block.ffn_tpl.holds<FeedForward::HParams>())
    reasons->unless(block.ffn_tpl.as<FeedForward::HParams>().use_gated_activation,
                    "ffn_tpl.use_gated_activation is false; Llama's feed-forward is gated");
}

HfModel describe(const TransformerLm::HParams& p, int64_t seq_len) {
  HfModel model;
  HfConfig& config = model.config;
  Reasons reasons;
  config.vocab_size = p.vocab_size.get();
  config.model_dims = p.model_dims.get();
  config.num_layers = p.num_layers.get();
  config.max_positions = seq_len;
  config.embedding_dropout = p.embedding_dropout_rate;
  describe_softmax(p, &config, &reasons);
  const Norm last = norm_of(p.final_ln_tpl, "final_ln_tpl", &reasons);
  const TransformerBlock::HParams* block = block_of(p.stacked_transformer_tpl, &config, &reasons);
  if (block != nullptr) {
    describe_block(*block, &model, &reasons);
    const Norm norm = norm_of(block->norm_tpl, "norm_tpl", &reasons);
    if (norm.kind != last.kind || norm.epsilon != last.epsilon)
      reasons.add("norm_tpl ({}, epsilon {}) and final_ln_tpl ({}, epsilon {}) differ", norm.kind,
                  norm.epsilon, last.kind, last.epsilon);
    config.norm_epsilon = norm.epsilon;
    model.conventions.block_scale_from_zero = norm.from_zero;
    model.conventions.final_scale_from_zero = last.from_zero;
    const bool is_rotary = block->attention_tpl.holds<DotProductAttention::HParams>() &&
                           block->attention_tpl.as<DotProductAttention::HParams>().rotary_tpl.has();
    if (is_rotary) {
      describe_as_llama(p, *block, norm, &config, &reasons);
    } else {
      describe_as_gpt2(p, *block, norm, &config, &reasons);
    }
  }
  reasons.raise();
  return model;
}

// Every TransformerLm below, by path.
using FoundModels = std::map<std::string, const Tree*>;

void find_language_models(const Tree& tree, const std::string& path, FoundModels* found) {
  if (tree.hparams != nullptr && *tree.hparams == typeid(TransformerLm::HParams))
    found->emplace(path, &tree);
  for (size_t i = 0; i < tree.items.size(); ++i)
    find_language_models(tree.items[i], tree.item_path(path, i), found);
}

int64_t seq_len_of(const ExperimentConfig& experiment) {
  const int64_t length = sequence_length(*make_input(experiment.input));
  if (length == 0) fail("the batches of its input have no ids [\"batch seq\"]");
  return length;
}

Template<UnaryLayer> feed_forward_of(const HfConfig& config) {
  const bool is_gpt2 = config.family == HfFamily::kGpt2;
  const Template<Activation> activation = hf_activation(config.activation, "model");
  if (config.family == HfFamily::kMixtral)
    return MoeFeedForward::HParams{
        .num_experts = config.num_experts,
        .router_tpl = TopKRouter::HParams{.top_k = config.experts_per_token,
                                          .load_balance_weight = loss_weight_of(config),
                                          .jitter = config.router_jitter},
        .activation_tpl = activation,
        .use_gated_activation = true};
  return FeedForward::HParams{.activation_tpl = activation,
                              .use_gated_activation = !is_gpt2,
                              .use_bias = is_gpt2 || config.mlp_bias};
}

Template<SequenceLayer> scaled_layers(const TransformerBlock::HParams& block,
                                      const HfConfig& config) {
  LayerSequence::HParams all;
  for (int64_t layer = 1; layer <= config.num_layers; ++layer) {
    TransformerBlock::HParams scaled = block;
    scaled.attention_tpl.as<DotProductAttention::HParams>().query_scale =
        1.0 / (std::sqrt(static_cast<double>(config.head_dim)) * static_cast<double>(layer));
    all.layers_tpl.push_back(StackedTransformer::HParams{.num_layers = 1, .block_tpl = scaled});
  }
  return all;
}

}  // namespace

HfModel hf_model_of(const ExperimentConfig& experiment) {
  const Tree whole = resolved(to_tree(experiment));  // Unset sizes are inherited from above.
  FoundModels found;
  find_language_models(at_path(whole, "task"), "task", &found);
  if (found.size() != 1)
    fail("the model has {} TransformerLm, expected one, which a GPT-2, Llama or Mixtral is",
         found.empty() ? "no" : std::to_string(found.size()));
  Template<TransformerLm> lm_tpl;
  from_tree(TreeReader{*found.begin()->second, found.begin()->first}, lm_tpl);
  return describe(lm_tpl.as<TransformerLm::HParams>(), seq_len_of(experiment));
}

LanguageModel::HParams model_of_hf(const HfConfig& config, HfStack stack) {
  const bool is_gpt2 = config.family == HfFamily::kGpt2;
  Template<UnaryLayer> norm = RmsNorm::HParams{.epsilon = config.norm_epsilon};
  if (is_gpt2) norm = LayerNorm::HParams{.epsilon = config.norm_epsilon};
  DotProductAttention::HParams attention{.num_kv_heads = config.num_kv_heads,
                                         .dims_per_head = config.head_dim,
                                         .use_bias = is_gpt2 || config.attention_bias};
  if (!is_gpt2) {
    RotaryPositionEmbedding::HParams rotary{.min_timescale = config.rope_factor,
                                            .max_timescale = config.rope_factor * config.rope_theta,
                                            .max_positions = config.max_positions};
    if (config.stretch.factor != 1.0) rotary.stretch = config.stretch;
    attention.rotary_tpl = rotary;
  }
  const TransformerBlock::HParams block{
      .attention_tpl = attention, .ffn_tpl = feed_forward_of(config), .norm_tpl = norm};
  TransformerLm::HParams lm{.vocab_size = config.vocab_size,
                            .model_dims = config.model_dims,
                            .num_layers = config.num_layers,
                            .num_heads = config.num_heads,
                            .hidden_dims = config.hidden_dims,
                            .final_ln_tpl = norm,
                            .params_init = WeightInit{InitKind::kGaussian, kInitScale}};
  if (is_gpt2)
    lm.position_emb_tpl =
        TrainablePositionalEmbedding::HParams{.max_seq_length = config.max_positions};
  if (!config.tied) {
    lm.separate_embedding_tpl = Embedding::HParams{};
    lm.softmax_tpl = FullSoftmax::HParams{};
  }
  if (config.inverse_layer_scale) {
    lm.stacked_transformer_tpl = scaled_layers(block, config);
  } else if (stack == HfStack::kRepeated) {
    lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  } else {
    lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  }
  return {.lm_tpl = lm};
}

}  // namespace tessera
