// SPDX-License-Identifier: Apache-2.0
// The base of GPT-2 models (Radford et al., 2019) as Levanter trains them on OpenWebText: its
// config/gpt2_*.yaml, with the defaults of its trainer and of its Adam, and its stability options
// as knobs. recipes.cc has the recipes.
//
// Levanter's option upcast_attn has no knob: attention scores and their softmax are always computed
// in f32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "layers/models/transformer.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

enum class Gpt2Data {
  kFlatTokens,  // The file at flat_tokens_path.
  kSynthetic    // Generated sequences; needs no file.
};

struct Gpt2Recipe : Experiment {
  using Base = Experiment;
  Gpt2Recipe() { strategy = Strategy::kFullySharded; }  // Levanter: fsdp_axis = "embed".
  int64_t num_layers = 12;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 50257;
  int64_t seq_len = 1024;
  int64_t global_batch_size = 512;
  double dropout_rate = 0.0;  // For embeddings, attention and residuals.
  DType compute_dtype = DType::kBF16;

  int64_t num_train_steps = 400'000;
  double learning_rate = 6e-4;
  double warmup = 0.01;  // Steps, or below 1 a fraction of num_train_steps.
  double min_learning_rate_ratio = 0.1;
  double weight_decay = 0.1;  // For matrices, but not for embeddings.
  double clip_gradient_norm = 1.0;

  // Stability options.
  bool scale_attention_by_inverse_layer = true;  // Divide the scores of layer i = 1, 2, … by i.
  bool use_qk_norm = false;                      // Normalise queries and keys, per head.
  double attention_logit_cap = 0.0;              // If > 0: cap·tanh(score/cap).
  double softmax_logit_cap = 0.0;
  double z_loss = 0.0;  // Weight of log²Z in the loss. Levanter: z_loss_weight.
  NormPolicy norm_policy = NormPolicy::kPre;
  double skip_step_gradient_norm = 0.0;  // Skip steps with a larger gradient; 0: none.

  Gpt2Data data = Gpt2Data::kFlatTokens;
  std::string flat_tokens_path = "data/openwebtext.h5";  // With splits `train` and `validation`.
  std::string text_path = "data/openwebtext.jsonl";      // Source text of the token file.
  std::string tokenizer = "data/gpt2/tokenizer.json";    // Tokenizer of the text.
  FIELDS(About(num_layers, kLayerCount), About(model_dims, kSize), About(num_heads, kSize),
         About(vocab_size, kSize), About(seq_len, kSize), About(global_batch_size, kSize),
         About(dropout_rate, "of embeddings, attention and residuals", kRate), compute_dtype,
         About(num_train_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(warmup, "steps, or below 1 a fraction of num_train_steps", kNotNegative),
         About(min_learning_rate_ratio, "of the peak, at the end", kShare),
         About(weight_decay, "of matrices, but not of embeddings", kNotNegative),
         About(clip_gradient_norm, kNotNegative),
         About(scale_attention_by_inverse_layer, "divide the scores of layer i = 1, 2, … by i"),
         About(use_qk_norm, "normalise queries and keys, per head"),
         About(attention_logit_cap, "c in c·tanh(score/c); 0: none", kNotNegative),
         About(softmax_logit_cap, "the same for logits", kNotNegative),
         About(z_loss, "weight of log²Z in the loss", kNotNegative), norm_policy,
         About(skip_step_gradient_norm, "skip steps with a larger gradient; 0: none", kNotNegative),
         data, flat_tokens_path, text_path, tokenizer)

  ExperimentConfig build() const override;
  void shrink() override;
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 private:
  // Returns blocks that divide their scores by `layer`, from 1; 0: not divided.
  TransformerBlock::HParams block(int64_t layer) const;
  Template<SequenceLayer> blocks() const;
  Template<BaseModel> model() const;
  Learner::HParams learner() const;
  Template<BaseInput> input(std::string_view split) const;
};

}  // namespace tessera
