// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=lm_cloud.LargeMlp --smoke
// Pax's LargeMlp and SmallMlp: an embedding, a multilayer perceptron on each token, and a softmax
// that shares the embedding's table (praxis: ClassificationMLPModel). It predicts the next token
// from one token. Pax's model has the accuracy as its loss, whose gradient is zero.
#include "layers/embeddings/embedding_softmax.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/base_model.h"
#include "plugins/registry.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"

namespace tessera {

// Features: ids, labels, weights.
class TokenMlp final : public BaseModel {
 public:
  struct HParams {
    using Instance = TokenMlp;
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    Template<UnaryLayer> mlp_tpl = Mlp::HParams{};  // ["… embed"] -> ["… embed"].
    Template<BaseSoftmax> softmax_tpl = SharedEmbeddingSoftmax::HParams{.use_bias = true};
    FIELDS(About(vocab_size, kSize), About(model_dims, kSize), mlp_tpl, softmax_tpl)
  };
  explicit TokenMlp(const HParams& p)
      : softmax_(child("softmax", p.softmax_tpl)), mlp_(child("mlp", p.mlp_tpl)) {}

 private:
  ModelOutput fprop(const Features& features) const override {
    return weighted_output(softmax_->loss(outputs(features), features.get("labels")),
                           features.find("weights"));
  }
  Tensor fprop_logits(const Features& features) const override {
    return softmax_->logits(outputs(features));
  }
  Tensor outputs(const Features& features) const {
    return mlp_(softmax_->embed_ids(features.get("ids")));
  }

  ChildLayer<BaseSoftmax> softmax_;
  ChildLayer<UnaryLayer> mlp_;
};

REGISTER_TEMPLATE(BaseModel, TokenMlp);

namespace {

// ClassificationModelAdam of paxml/tasks/lm/model_params.py.
struct MlpRecipe : Experiment {
  using Base = Experiment;
  MlpRecipe() {
    ici_mesh_shape = {8, 1, 1};
    strategy = Strategy::kReplicas;
  }
  int64_t num_layers = 8;
  int64_t model_dims = 4096;   // Also the number of classes. Pax: INPUT_DIM.
  int64_t hidden_dims = 7168;  // Between the layers.
  int64_t seq_len = 1024;
  int64_t global_batch_size = 128;  // 16 on each of 8 devices.
  int64_t num_train_steps = 10;
  double learning_rate = 1e-3;
  double weight_decay = 1e-3;
  FIELDS(About(num_layers, {.min = 1, .max = 65536}), About(model_dims, kSize),
         About(hidden_dims, kSize), About(seq_len, kSize), About(global_batch_size, kSize),
         About(num_train_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(weight_decay, kNotNegative))

  ExperimentConfig build() const override {
    const LinearRampupExponentialDecay::HParams schedule{
        .warmup_steps = 4000, .decay_start = 4001, .decay_end = 300'000, .min_ratio = 0.1};
    return {.mesh = mesh(),
            .task =
                SingleTask::HParams{
                    .dtypes = DTypePolicy{.param = DType::kF32, .compute = DType::kF32},
                    .model = model(),
                    .learner = {.optimizer_tpl = Adam::HParams{.learning_rate = learning_rate,
                                                               .schedule_tpl = schedule,
                                                               .beta2 = 0.99,
                                                               .weight_decay = weight_decay},
                                .clip_gradient_norm_to_value = 5.0},
                    .train = {.num_train_steps = num_train_steps,
                              .save_interval_steps = 5,
                              .save_max_to_keep = 10,
                              .eval_interval_steps = 100,
                              .summary_interval_steps = 5}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  void shrink() override {
    Experiment::shrink();
    num_layers = 2;
    model_dims = 32;
    hidden_dims = 64;
    seq_len = 32;
    global_batch_size = 8;
  }

 private:
  Template<BaseModel> model() const {
    std::vector<int64_t> widths(static_cast<size_t>(num_layers), hidden_dims);
    widths.back() = model_dims;
    return TokenMlp::HParams{
        .vocab_size = model_dims,
        .model_dims = model_dims,
        .mlp_tpl =
            Mlp::HParams{.input_dims = model_dims, .hidden_dims = widths, .input_axis = "embed"}};
  }

  Template<BaseInput> input(std::string_view split) const {
    return generated_split(split, /*seed=*/1, global_batch_size, seq_len);
  }
};

REGISTER_EXPERIMENT(
    lm_cloud, LargeMlp, MlpRecipe,
    "Pax's LargeMlp: 8 layers, 4096 to 7168 wide, 384M weights in f32; 8 replicas") {}

REGISTER_EXPERIMENT(lm_cloud, SmallMlp, MlpRecipe,
                    "Pax's SmallMlp: 8 layers, 1024 wide, 9.4M weights in f32; 8 replicas") {
  model_dims = 1024;
  hidden_dims = 1024;
}

}  // namespace
}  // namespace tessera
