// SPDX-License-Identifier: Apache-2.0
// A training command of a second or less, to be run in a folder that has text.txt.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "tests/support/temporary_directory.h"

namespace tessera {

// Writes the run into `run`.
inline std::string tiny_command(int64_t num_train_steps) {
  return fmt::format(
      "'{}/bin/runexp' --exp=quickstart.CharLm --threads=1 --job_log_dir=run "
      "--set input.path=text.txt --set num_layers=1 --set model_dims=16 --set num_heads=2 "
      "--set hidden_dims=16 --set seq_len=16 --set global_batch_size=2 --set warmup_steps=1 "
      "--set sample_length=0 --set num_train_steps={}",
      TESSERA_BINARY_DIR, num_train_steps);
}

inline void write_tiny_text(const TemporaryDirectory& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  write_bytes(folder / "text.txt", text);
}

}  // namespace tessera
