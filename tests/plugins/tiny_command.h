// SPDX-License-Identifier: Apache-2.0
// A training command that takes a second or less. It runs in a folder that contains text.txt
// (tests/support/temporary_directory.h).
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace tessera {

// Arguments of runexp; the run is written to `run`.
inline std::string tiny_arguments(int64_t num_train_steps) {
  return fmt::format(
      "--exp=quickstart.CharLm --threads=1 --job_log_dir=run --set input.path=text.txt "
      "--set num_layers=1 --set model_dims=16 --set num_heads=2 --set hidden_dims=16 "
      "--set seq_len=16 --set global_batch_size=2 --set warmup_steps=1 --set sample_length=0 "
      "--set num_train_steps={}",
      num_train_steps);
}

inline std::string tiny_command(int64_t num_train_steps) {
  return fmt::format("'{}/bin/runexp' {}", TESSERA_BINARY_DIR, tiny_arguments(num_train_steps));
}

}  // namespace tessera
