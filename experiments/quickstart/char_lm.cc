// SPDX-License-Identifier: Apache-2.0
// quickstart.CharLm: any text file, given as --set input.path=FILE; its last tenth is the
// validation split. Sizes and schedule are those of nanoGPT's recipe for Shakespeare on a CPU.
#include "experiments/quickstart/byte_lm.h"
#include "plugins/registry.h"

namespace tessera {

struct CharLm : ByteLm {
  static constexpr std::string_view kSummary =
      "learns any text: --set input.path=FILE (nanoGPT's recipe for Shakespeare on a CPU)";
  CharLm() {
    seq_len = 64;
    global_batch_size = 12;
    num_train_steps = 2000;
    sample_length = 300;
  }
};
REGISTER_EXPERIMENT(quickstart, CharLm)

}  // namespace tessera
