// SPDX-License-Identifier: Apache-2.0
// The base of JAXformer's models (https://github.com/divyamakkar0/JAXformer): blocks of layers with
// latent attention, of which the last one is a mixture of experts and has no rotary dimensions. A
// stage of the pipeline has whole blocks. The mesh is stage, replica, data, mdl; JAXformer calls
// them pp, (it has no replicas), dp and tp. Knobs have the defaults of JAXformer's flags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

enum class JaxformerData {
  kFlatTokens,  // The file at flat_tokens_path.
  kSynthetic    // Generated sequences; needs no file.
};
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

  JaxformerData data = JaxformerData::kFlatTokens;
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

  ExperimentConfig build() const override;
  void shrink() override;
  void validate() const override;

 protected:
  Template<BaseModel> model() const;
  Template<SequenceLayer> block() const;
  Template<SequenceLayer> layer(bool is_last) const;
  Template<BaseInput> input(std::string_view split) const;
};

}  // namespace tessera
