// SPDX-License-Identifier: Apache-2.0
// quickstart.SourceLm: learns Tessera's own sources and docs, byte by byte, in a few minutes on two
// cores. Needs no data but this repository.
#include "experiments/quickstart/byte_lm.h"
#include "plugins/registry.h"

namespace tessera {

struct SourceLm : ByteLm {
  static constexpr std::string_view kSummary =
      "learns this repository's own sources and docs, byte by byte; needs no data";
  SourceLm() {
    // Many small steps suit a small corpus.
    seq_len = 128;
    global_batch_size = 16;
    num_train_steps = 1500;
    learning_rate = 2e-3;
    sample_length = 500;
  }
};
REGISTER_EXPERIMENT(quickstart, SourceLm)

}  // namespace tessera
