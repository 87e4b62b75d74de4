// SPDX-License-Identifier: Apache-2.0
#include "experiments/c4/c4_spmd.h"

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

constexpr int64_t kTrainSeed = 9876;  // Of the order of training data.
constexpr int64_t kShuffledDocuments = 256;

}  // namespace

C4Spmd::C4Spmd() {
  num_layers = 24;
  model_dims = 2048;
  num_heads = 32;
  vocab_size = 32128;
  activation_tpl = GELU::HParams{.approximate = true};
  remat_policy = "save_dot_for_mlperf_200b";
  save_interval_steps = 1000;
  ici_mesh_shape = {1, 4, 2};
}

// Evaluation reads each example of `validation` once.
Template<BaseInput> C4Spmd::input(std::string_view split) const {
  const bool train = split == "train";
  if (data == C4Data::kSynthetic) return Base::input(split);
  if (data == C4Data::kShards)
    return StreamingTextInput::HParams{
        .path = train ? train_shards : validation_shards,
        .tokenizer = tokenizer,
        .split = StreamSplit::kAll,  // C4 has separate validation files.
        .name = std::string(split),
        .global_batch_size = batch_size(),
        .seq_len = seq_len,
        .labels = Labels::kShiftRight,
        .shuffle = train,
        .shuffle_documents = train ? kShuffledDocuments : 1,
        .repeat = train,
        .seed = kTrainSeed};
  return FlatTokensInput::HParams{.path = flat_tokens_path,
                                  .split = std::string(split),
                                  .global_batch_size = batch_size(),
                                  .seq_len = seq_len,
                                  .labels = Labels::kShiftRight,
                                  .shuffle = train ? Shuffle::kFull : Shuffle::kNone,
                                  .repeat = train,
                                  .seed = kTrainSeed};
}

// 1.10 billion weights, fully sharded over four devices.
struct Spmd1B : C4Spmd {
  static constexpr std::string_view kSummary =
      "Pax's C4Spmd1BAdam4Replicas: 1.10B weights on 4 devices; --set flat_tokens_path=FILE";
  Spmd1B() {
    num_layers = 13;
    model_dims = 2560;
    num_heads = 20;
    vocab_size = 32000;
    percore_batch_size = 32;
    compute_dtype = DType::kBF16;
    use_repeated_layer = true;
    remat_policy = "save_nothing";
    summary_interval_steps = 10;
    ici_mesh_shape = {1, 4, 1};
  }
};
REGISTER_EXPERIMENT(c4, Spmd1B)

// Every axis is divisible by eight. The mesh takes all available devices; the batch is fixed.
struct Spmd1BSmoke : Spmd1B {
  static constexpr std::string_view kSummary =
      "c4.Spmd1B with 2 narrow layers and 200 steps, on synthetic data or --set data=flat_tokens";
  Spmd1BSmoke() {
    num_layers = 2;
    model_dims = 64;
    num_heads = 8;
    vocab_size = 264;  // Bytes and the reserved id, rounded up.
    tokenizer = "bytes";
    seq_len = 64;
    global_batch_size = 16;
    ici_mesh_shape = {};
    data = C4Data::kSynthetic;
    num_train_steps = 200;
    warmup_steps = 40;
    decay_end = 200;
    save_interval_steps = 100;
  }
};
REGISTER_EXPERIMENT(c4, Spmd1BSmoke)

}  // namespace tessera
