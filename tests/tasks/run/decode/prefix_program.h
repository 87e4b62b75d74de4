// SPDX-License-Identifier: Apache-2.0
// A deterministic stand-in for a model in decoding tests: its logits are a function of the
// preceding tokens, and it overwrites cache positions as a real cache does, so that a decoder's
// mistakes change the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tasks/run/decode/decode_program.h"

namespace tessera {

class PrefixProgram final : public BaseDecodeProgram {
 public:
  struct Sizes {
    int64_t rows = 4;
    int64_t cache_length = 64;
    int64_t vocab_size = 6;
    int64_t prefill_chunk = 4;
    double sharpness = 2.0;  // Logits are uniform in [-sharpness, sharpness].
  };
  explicit PrefixProgram(const Sizes& sizes);

  int64_t rows() const override { return sizes_.rows; }
  int64_t cache_length() const override { return sizes_.cache_length; }
  int64_t vocab_size() const override { return sizes_.vocab_size; }
  int64_t prefill_chunk() const override { return sizes_.prefill_chunk; }
  std::span<const float> prefill(std::span<const RowTokens> rows) override;
  std::span<const float> step(std::span<const RowTokens> rows) override;
  void reorder(std::span<const int32_t> parents) override;

  // The logits after `tokens`, for any program of these sizes.
  static std::vector<float> logits_after(std::span<const int32_t> tokens, const Sizes& sizes);

  int64_t prefills = 0, steps = 0, reorders = 0;

 private:
  std::span<const float> run(std::span<const RowTokens> rows, int64_t seq);

  Sizes sizes_;
  std::vector<std::vector<int32_t>> cache_;  // Cached ids of each row; -1 marks padding.
  std::vector<float> logits_;
};

}  // namespace tessera
