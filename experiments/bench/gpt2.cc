// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=bench.Gpt2Base
// The models for speed measurements: GPT-2's architecture (learned positions, LayerNorm, exact
// GELU, no biases as in nanoGPT's small recipes, tied embeddings) on synthetic tokens. Initial
// weights as in GPT-2: N(0, 0.02²), and N(0, 0.02²/(2·layers)) for projections into the residual.
// AdamW with betas 0.9 and 0.95, epsilon 1e-8, a constant learning rate and weight decay 0.1 on
// matrices; gradients are clipped to a global norm of 1. The same model in another framework gives
// the same first losses.
#include <cmath>
#include <cstdint>

#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;

struct Gpt2 : Experiment {
  using Base = Experiment;
  int64_t num_layers = 12;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 50304;
  int64_t seq_len = 256;
  int64_t global_batch_size = 4;
  int64_t num_train_steps = 20;
  double learning_rate = 6e-4;
  DType compute_dtype = DType::kF32;
  FIELDS(About(num_layers, kLayerCount), About(model_dims, kSize), About(num_heads, kSize),
         About(vocab_size, kSize), About(seq_len, kSize), About(global_batch_size, kSize),
         About(num_train_steps, kNotNegative), About(learning_rate, kNotNegative), compute_dtype)

  ExperimentConfig build() const override {
    const AdamW::HParams optimizer{
        .learning_rate = learning_rate, .beta2 = 0.95, .weight_decay = 0.1};
    return {.mesh = mesh(),
            .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                        .model = model(),
                                        .learner = {.optimizer_tpl = optimizer,
                                                    .clip_gradient_norm_to_value = 1.0,
                                                    .skip_lp_1d_vectors = true},
                                        .train = {.num_train_steps = num_train_steps,
                                                  .save_interval_steps = 0,
                                                  .eval_interval_steps = 0}},
            .input = SyntheticInput::HParams{.task = SyntheticTask::kGaussians,
                                             .global_batch_size = global_batch_size,
                                             .seq_len = seq_len,
                                             .num_letters = 100,
                                             .score_all = true}};
  }

  void shrink() override {
    Experiment::shrink();
    num_layers = 2;
    num_heads = 4;
    model_dims = num_heads * 8;
    vocab_size = 264;
    seq_len = 32;
    global_batch_size = 8;
    num_train_steps = kSmokeSteps;
  }

 private:
  Template<BaseModel> model() const {
    const WeightInit residual_init{InitKind::kGaussian,
                                   kInitScale / std::sqrt(2.0 * static_cast<double>(num_layers))};
    const LayerNorm::HParams norm{.epsilon = 1e-5, .use_bias = false};
    const FeedForward::HParams ffn{.activation_tpl = GELU::HParams{.approximate = false},
                                   .down_init = residual_init};
    const TransformerBlock::HParams block{
        .attention_tpl = DotProductAttention::HParams{.output_init = residual_init},
        .ffn_tpl = ffn,
        .norm_tpl = norm};
    return LanguageModel::HParams{
        .lm_tpl = TransformerLm::HParams{
            .vocab_size = vocab_size,
            .model_dims = model_dims,
            .num_layers = num_layers,
            .num_heads = num_heads,
            .hidden_dims = 4 * model_dims,
            .packed_input = false,
            .position_emb_tpl = TrainablePositionalEmbedding::HParams{.max_seq_length = seq_len},
            .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
            .final_ln_tpl = norm,
            .params_init = WeightInit{InitKind::kGaussian, kInitScale}}};
  }
};

// GPT-2 124M: 12 layers, 768 wide, 50304 tokens.
REGISTER_EXPERIMENT(bench, Gpt2Base, Gpt2, "speed: GPT-2 124M on synthetic tokens") {}

REGISTER_EXPERIMENT(bench, Gpt2Small, Gpt2,
                    "speed: 6 layers, 384 wide, 8192 tokens, on synthetic tokens") {
  num_layers = 6;
  model_dims = 384;
  num_heads = 6;
  vocab_size = 8192;
  global_batch_size = 16;
}

// A model over bytes.
REGISTER_EXPERIMENT(bench, Gpt2Tiny, Gpt2,
                    "speed: 4 layers, 128 wide, over bytes, on synthetic tokens") {
  num_layers = 4;
  model_dims = 128;
  num_heads = 4;
  vocab_size = 264;
  global_batch_size = 32;
}

}  // namespace
}  // namespace tessera
