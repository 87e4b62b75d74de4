// SPDX-License-Identifier: Apache-2.0
// The base of JAXformer's models (https://github.com/divyamakkar0/JAXformer): blocks of layers with
// latent attention, of which the last one is a mixture of experts and has no rotary dimensions. A
// stage of the pipeline has whole blocks. The mesh is stage, replica, data, mdl; JAXformer calls
// them pp, (it has no replicas), dp and tp. Knobs have the defaults of JAXformer's flags.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "tasks/config/experiment.h"

namespace tessera {

enum class JaxformerData {
  kFlatTokens,  // The file at flat_tokens_path.
  kSynthetic    // Generated sequences; needs no file.
};
constexpr std::array<EnumName<JaxformerData>, 2> enum_names(JaxformerData) {
  return {{{JaxformerData::kFlatTokens, "flat_tokens"}, {JaxformerData::kSynthetic, "synthetic"}}};
}

struct Jaxformer : Experiment {
  using Base = Experiment;
  int64_t num_blocks = 8;
  int64_t layers_per_block = 6;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 100277;  // Of cl100k_base. The table has this many rows, rounded up to 8.
  int64_t seq_len = 1024;
  int64_t latent_dims = 128;  // Of keys and values, and of queries.
  int64_t rope_dims = 128;    // Of each head; none in the last layer of a block.
  double dropout_rate = 0.2;  // Of what attention and feed-forward layers add to the residual.

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
  double weight_decay = 1e-4;  // Of every weight: optax's default for AdamW.
  int64_t eval_interval_steps = 100;
  int64_t eval_batches = 25;
  int64_t save_interval_steps = 1000;
  FIELDS(num_blocks, layers_per_block, model_dims, num_heads, vocab_size, seq_len, latent_dims,
         rope_dims, dropout_rate, num_experts, top_k, num_shared_experts, capacity_factor,
         load_balance_weight, global_batch_size, num_microbatches, compute_dtype, data,
         flat_tokens_path, num_train_steps, learning_rate, warmup_steps, decay_end, weight_decay,
         eval_interval_steps, eval_batches, save_interval_steps)

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
