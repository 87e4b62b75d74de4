// SPDX-License-Identifier: Apache-2.0
// What decoding asks of a model: the logits after each row's latest token, computed incrementally.
// Not how tokens are chosen (generation.h) nor which row does what (decoder.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// New tokens of a row, at `position` and after. A row without any idles: what is at `position` and
// after is not kept.
struct RowTokens {
  int64_t position = 0;
  std::span<const int32_t> ids;
};

// A row's keys and values depend on its own tokens alone, and so do its logits, to the bit.
class BaseDecodeProgram {
 public:
  virtual ~BaseDecodeProgram() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cache_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t prefill_chunk() const = 0;

  // The logits after each row's last token, ["rows vocab"], until the next call. Rows that idle get
  // some logits too. Prompts are read in chunks from a multiple of prefill_chunk on, of at most so
  // many tokens; what is generated goes through `step`, one token a row.
  virtual std::span<const float> prefill(std::span<const RowTokens> rows) = 0;
  virtual std::span<const float> step(std::span<const RowTokens> rows) = 0;
  // Row r goes on from what row parents[r] holds.
  virtual void reorder(std::span<const int32_t> parents) = 0;
};

}  // namespace tessera
