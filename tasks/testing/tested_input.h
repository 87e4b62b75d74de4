// SPDX-License-Identifier: Apache-2.0
// Tests for authors of inputs: that batches are what inputs/base_input.h says, the same for any
// number of hosts, and the same again after a reset and after resuming at each of them.
//
//   const TestedInput words(Words::HParams{.path = "words.txt", .global_batch_size = 4, …});
//   words.check();
//   const std::vector<Batch> batches = words.batches(2);
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/hparams/template.h"
#include "inputs/base_input.h"

namespace tessera {

class TestedInput {
 public:
  explicit TestedInput(Template<BaseInput> input_tpl, std::filesystem::path run_directory = {})
      : input_tpl_(std::move(input_tpl)), run_directory_(std::move(run_directory)) {}
  // The first batches, fewer if the input ends.
  std::vector<Batch> batches(int64_t most) const;
  // Error, naming the batch and its array, for the first of this many that differs.
  void check(int64_t most = 4) const;

 private:
  std::unique_ptr<BaseInput> opened(int64_t host, int64_t hosts) const;

  Template<BaseInput> input_tpl_;
  std::filesystem::path run_directory_;
};

}  // namespace tessera
