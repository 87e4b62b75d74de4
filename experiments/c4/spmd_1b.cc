// SPDX-License-Identifier: Apache-2.0
// c4.Spmd1B: Pax's C4Spmd1BAdam4Replicas, 1.10 billion weights fully sharded over four devices.
// c4.Spmd1BSmoke: the same recipe, small enough for any machine.
#include "experiments/c4/c4_spmd.h"
#include "plugins/registry.h"

namespace tessera {

struct Spmd1B : C4Spmd {
  static constexpr std::string_view kSummary =
      "Pax's C4Spmd1BAdam4Replicas: 1.10B weights on 4 devices; --set flat_tokens_path=FILE";
  Spmd1B() {
    num_layers = 13;
    model_dims = 2560;
    hidden_dims = 4 * 2560;
    num_heads = 20;
    percore_batch_size = 32;
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
    hidden_dims = 4 * 64;
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
