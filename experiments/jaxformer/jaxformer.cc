// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=jaxformer.Moe --smoke
// The base of JAXformer's models (https://github.com/divyamakkar0/JAXformer): blocks of layers with
// latent attention, of which the last one is a mixture of experts and has no rotary dimensions. A
// stage of the pipeline has whole blocks. The mesh is stage, replica, data, mdl; JAXformer calls
// them pp, (it has no replicas), dp and tp. Knobs have the defaults of JAXformer's flags.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "layers/attention/latent_attention.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"
#include "plugins/registry.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {

// JAXformer's norm (its class RMSNorm), RMSNorm with a bias:
// x["… embed"] -> x / rms(x)·scale + shift, over `embed`.
class ShiftedRmsNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = ShiftedRmsNorm;
    static constexpr std::string_view kName = "jaxformer.ShiftedRmsNorm";
    Required<int64_t> model_dims;
    double epsilon = 1e-6;
    FixedInitLayerHParams layer;
    FIELDS(About(model_dims, kSize), About(epsilon, kNotNegative), layer)
  };

  explicit ShiftedRmsNorm(const HParams& p) : UnaryLayer(p.layer) {
    norm_ = child<UnaryLayer>("norm", RmsNorm::HParams{.model_dims = p.model_dims,
                                                       .epsilon = p.epsilon,
                                                       .layer = {.dtypes = p.layer.dtypes}});
    shift_ = child<UnaryLayer>(
        "shift", Bias::HParams{.dims = p.model_dims, .layer = {.dtypes = p.layer.dtypes}});
  }

 private:
  Tensor fprop(Tensor x) const override { return shift_(norm_(x)); }

  ChildLayer<UnaryLayer> norm_, shift_;
};

REGISTER_TEMPLATE(UnaryLayer, ShiftedRmsNorm);

namespace {

// The residual is split by its width, as in JAXformer; weights are gathered over `data` before use.
constexpr const char* kWeights =
    "layers -> stage, embed -> data, kv_latent -> data, q_latent -> data, latent -> data, "
    "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
constexpr const char* kActivations =
    "residual: embed -> mdl, batch -> (replica, data), mlp -> mdl, heads -> mdl, kv_heads -> mdl, "
    "vocab -> mdl";

// Rounds up, so that devices divide the vocabulary; ids beyond it do not occur.
int64_t table_rows(int64_t vocab_size) { return (vocab_size + 7) / 8 * 8; }

}  // namespace

struct Jaxformer : Experiment {
  using Base = Experiment;
  int64_t num_blocks = 8;
  int64_t layers_per_block = 6;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 100277;  // cl100k_base. The table has this many rows, rounded up to 8.
  int64_t seq_len = 1024;
  int64_t latent_dims = 128;  // Width of the latent of keys and values, and that of queries.
  int64_t rope_dims = 128;    // For each head; none in the last layer of a block.
  double dropout_rate = 0.2;  // For the outputs of attention and feed-forward layers.

  int64_t num_experts = 16;  // 0: the last layer is dense, too.
  int64_t top_k = 2;
  int64_t num_shared_experts = 2;
  double capacity_factor = 1.5;
  double load_balance_weight = 1e-4;

  int64_t global_batch_size = 16;
  int64_t num_microbatches = 4;
  DType compute_dtype = DType::kBF16;

  RecipeData data = RecipeData::kFlatTokens;
  std::string flat_tokens_path = "data/fineweb_edu.h5";  // With splits `train` and `validation`.

  int64_t num_train_steps = 100'000;
  double learning_rate = 6e-4;
  int64_t warmup_steps = 5000;
  int64_t decay_end = 75'000;
  double weight_decay = 1e-4;  // For every weight: optax's default for AdamW.
  int64_t eval_interval_steps = 100;
  int64_t eval_batches = 25;
  int64_t save_interval_steps = 1000;
  FIELDS(About(num_blocks, kSize), About(layers_per_block, kSize), About(model_dims, kSize),
         About(num_heads, kSize), About(vocab_size, kSize), About(seq_len, kSize),
         About(latent_dims, kSize), About(rope_dims, kNotNegative), About(dropout_rate, kRate),
         About(num_experts, kNotNegative), About(top_k, kSize),
         About(num_shared_experts, kNotNegative), About(capacity_factor, kPositive),
         About(load_balance_weight, kNotNegative), About(global_batch_size, kSize),
         About(num_microbatches, kSize), compute_dtype, data, flat_tokens_path,
         About(num_train_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(warmup_steps, kNotNegative), decay_end, About(weight_decay, kNotNegative),
         About(eval_interval_steps, kNotNegative), About(eval_batches, {.min = 1, .also = -1}),
         About(save_interval_steps, kNotNegative))

  ExperimentConfig build() const override {
    const LinearRampupCosineDecay::HParams schedule{
        .warmup_steps = warmup_steps, .decay_end = decay_end, .min_ratio = 0.1};
    MeshConfig stages = mesh();
    stages.axis_names = {"stage", "replica", "data", "mdl"};
    return {.mesh = stages,
            .rules = {.weights = kWeights, .activations = kActivations},
            .task =
                SingleTask::HParams{
                    .dtypes = DTypePolicy{.compute = compute_dtype},
                    .model = model(),
                    .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                                                .schedule_tpl = schedule,
                                                                .weight_decay = weight_decay},
                                .clip_gradient_norm_to_value = 1.0},
                    .train = {.num_train_steps = num_train_steps,
                              .num_microbatches = num_microbatches,
                              .pipeline_schedule = GPipe::HParams{},
                              .remat_policy = "save_nothing",
                              .save_interval_steps = save_interval_steps,
                              .save_max_to_keep = 1,
                              .eval_interval_steps = eval_interval_steps}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  // Shrinks to a block of one dense layer and the last one, for each of two stages.
  void shrink() override {
    Experiment::shrink();
    num_blocks = 2;
    layers_per_block = 2;
    num_heads = 4;
    model_dims = num_heads * 8;
    vocab_size = 264;
    seq_len = 32;
    latent_dims = 8;
    rope_dims = 8;
    if (num_experts > 0) num_experts = 2 * top_k;
    global_batch_size = 2 * num_microbatches;
    data = RecipeData::kSynthetic;
    num_train_steps = kSmokeSteps;
    warmup_steps = 2;
    decay_end = kSmokeSteps;
    eval_batches = 1;
  }

  void validate() const override {
    Experiment::validate();
    if (num_experts > 0 && top_k > num_experts)
      fail("top_k={}, expected 1 to num_experts={}", top_k, num_experts);
    if (global_batch_size % num_microbatches != 0)
      fail("num_microbatches={} does not divide global_batch_size={}", num_microbatches,
           global_batch_size);
  }

 protected:
  Template<BaseModel> model() const {
    const WeightInit table_init{InitKind::kGaussian,
                                1.0 / std::sqrt(static_cast<double>(model_dims))};
    // Flax's lecun_normal: variance 1 / fan-in, divided by the deviation of a truncated normal.
    const WeightInit init{InitKind::kTruncatedGaussianSqrtFanIn, 1.0 / 0.87962566103423978};
    return LanguageModel::HParams{
        .lm_tpl = TransformerLm::HParams{
            .vocab_size = table_rows(vocab_size),
            .model_dims = model_dims,
            .num_layers = num_blocks,
            .num_heads = num_heads,
            .hidden_dims = 4 * model_dims,
            .packed_input = false,  // Attention crosses documents of a row.
            .softmax_tpl = SharedEmbeddingSoftmax::HParams{.layer = {.params_init = table_init}},
            .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block()},
            .final_ln_tpl = ShiftedRmsNorm::HParams{},
            .params_init = init}};
  }

  Template<SequenceLayer> block() const {
    std::vector<Template<SequenceLayer>> layers;
    for (int64_t i = 0; i < layers_per_block; ++i)
      layers.push_back(layer(i + 1 == layers_per_block));
    return LayerSequence::HParams{.layers_tpl = layers};
  }

  Template<SequenceLayer> layer(bool is_last) const {
    const LatentAttention::HParams attention{.kv_lora_rank = latent_dims,
                                             .q_lora_rank = latent_dims,
                                             .rope_dims = is_last ? 0 : rope_dims,
                                             .rope_source = RotarySource::kLatents,
                                             .normalize_latents = false,
                                             .use_bias = true};
    const GELU::HParams gelu{.approximate = true};
    TransformerBlock::HParams result{
        .norm_policy = NormPolicy::kPre,
        .attention_tpl = attention,
        .ffn_tpl = FeedForward::HParams{.activation_tpl = gelu, .use_bias = true},
        .norm_tpl = ShiftedRmsNorm::HParams{},
        .residual_dropout_rate = dropout_rate};
    if (is_last && num_experts > 0)
      result.ffn_tpl = MoeFeedForward::HParams{
          .num_experts = num_experts,
          .router_tpl = TopKRouter::HParams{.top_k = top_k,
                                            .scores = RouterScores::kSigmoid,
                                            .capacity_factor = capacity_factor,
                                            .load_balance_weight = load_balance_weight},
          .activation_tpl = gelu,
          .num_shared_experts = num_shared_experts};
    return result;
  }

  // Reads files in order, as JAXformer does, and evaluates on the beginning of the validation data.
  Template<BaseInput> input(std::string_view split) const {
    const bool train = split == "train";
    const int64_t batches = train ? -1 : eval_batches;
    if (data == RecipeData::kSynthetic) {
      SyntheticInput::HParams generated = generated_split(split, 1, global_batch_size, seq_len);
      generated.num_batches = batches;
      return generated;
    }
    return FlatTokensInput::HParams{.path = flat_tokens_path,
                                    .split = std::string(split),
                                    .global_batch_size = global_batch_size,
                                    .seq_len = seq_len,
                                    .labels = Labels::kNextToken,
                                    .shuffle = Shuffle::kNone,
                                    .repeat = train,
                                    .num_batches = batches};
  }
};

// The defaults of JAXformer's flags.
REGISTER_EXPERIMENT(
    jaxformer, Moe, Jaxformer,
    "JAXformer's defaults: 1.01B weights, experts in every sixth layer, 16 rows, on one device") {
  ici_mesh_shape = {1, 1, 1, 1};
}

// The run that JAXformer reports: 32 rows for each part of the data axis.
REGISTER_EXPERIMENT(
    jaxformer, Moe1B, Jaxformer,
    "JAXformer's moe1B, the run it reports: 1.01B weights on 2 stages x 8 data x 2 mdl") {
  global_batch_size = 8 * 32;
  eval_interval_steps = 75;
  eval_batches = 10;
  save_interval_steps = 750;
  ici_mesh_shape = {2, 1, 8, 2};
}

REGISTER_EXPERIMENT(
    jaxformer, Dense, Moe1B,
    "JAXformer's moe1B with dense layers for experts: 373M weights on the same mesh") {
  num_experts = 0;
}

}  // namespace tessera
