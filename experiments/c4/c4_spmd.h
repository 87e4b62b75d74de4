// SPDX-License-Identifier: Apache-2.0
// The base of Pax's c4 language models (paxml/tasks/lm/params/c4.py), with Pax's implicit defaults:
// pre-norm blocks with a combined QKV projection, sinusoidal positions, one table for embedding and
// softmax, capped logits, Adam with capped updates. A recipe derives and sets sizes and its mesh.
// The data are a flat-tokens file, or C4's files. c4_spmd.cc has the recipes, c4_data.cc the
// commands that fetch the data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/hparams/fields.h"
#include "tasks/config/experiment.h"

namespace tessera {

enum class C4Data {
  kFlatTokens,  // The file at flat_tokens_path.
  kShards,      // C4's files, tokenised on the fly: train_shards and validation_shards.
  kSynthetic    // Generated sequences; needs no file.
};

constexpr std::array<EnumName<C4Data>, 3> enum_names(C4Data) {
  return {{{C4Data::kFlatTokens, "flat_tokens"},
           {C4Data::kShards, "shards"},
           {C4Data::kSynthetic, "synthetic"}}};
}

struct C4Spmd : Experiment {
  using Base = Experiment;
  C4Spmd() { strategy = Strategy::kPax; }
  int64_t num_layers = 1;
  int64_t model_dims = 128;
  int64_t hidden_dims = 512;
  int64_t num_heads = 1;
  int64_t vocab_size = 32000;
  int64_t seq_len = 1024;
  // Examples per device and step. The global batch is this times the number of devices in
  // ici_mesh_shape and dcn_mesh_shape, unless global_batch_size is set.
  int64_t percore_batch_size = 1;
  Field<int64_t> global_batch_size;
  DType compute_dtype = DType::kBF16;

  C4Data data = C4Data::kFlatTokens;
  std::string flat_tokens_path = "data/c4_en.h5";  // With splits `train` and `validation`.
  std::string train_shards = "data/en/c4-train.*.json.gz";
  std::string validation_shards = "data/en/c4-validation.*.json.gz";
  std::string tokenizer = "data/c4_en.32000.model";  // Of the shards; at most vocab_size ids.

  int64_t num_train_steps = 10'000'000;
  double learning_rate = 1e-3;
  int64_t warmup_steps = 4000;
  int64_t decay_end = 300'000;
  double weight_decay = 1e-3;  // Of every weight, also biases and norms.
  int64_t save_interval_steps = 1000;
  int64_t eval_interval_steps = 100;
  int64_t summary_interval_steps = 10;
  std::string remat_policy = "save_nothing";
  FIELDS(num_layers, model_dims, hidden_dims, num_heads, vocab_size, seq_len, percore_batch_size,
         global_batch_size, compute_dtype, data, flat_tokens_path, train_shards, validation_shards,
         tokenizer, num_train_steps, learning_rate, warmup_steps, decay_end, weight_decay,
         save_interval_steps, eval_interval_steps, summary_interval_steps, remat_policy)

  ExperimentConfig build() const override;
  void shrink() override;
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 protected:
  int64_t batch_size() const;
  Template<BaseModel> model() const;
  Learner::HParams learner() const;
  Template<BaseInput> input(std::string_view split) const;
};

}  // namespace tessera
