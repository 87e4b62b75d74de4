// SPDX-License-Identifier: Apache-2.0
// quickstart.TokenLm: learns a token file of `flat_tokens build`, given as --set tokens=FILE.h5,
// and scores its validation split. docs/data.md describes the whole way from text to bits per byte.
#include "experiments/quickstart/byte_lm.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "plugins/registry.h"

namespace tessera {

struct TokenLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns a token file: --set tokens=FILE.h5 --set vocab_size=N (docs/data.md)";
  TokenLm() {
    vocab_size = 8192;
    num_train_steps = 2000;
    sample_length = 100;
  }
  std::string tokens = "tokens.h5";
  FIELDS(tokens)

  ExperimentConfig build() const override {
    ExperimentConfig config = ByteLm::build();
    config.input = FlatTokensInput::HParams{
        .path = tokens, .global_batch_size = global_batch_size, .seq_len = seq_len};
    config.eval_inputs.at("validation").as<FlatTokensInput::HParams>().path = tokens;
    return config;
  }
};
REGISTER_EXPERIMENT(quickstart, TokenLm)

}  // namespace tessera
