// SPDX-License-Identifier: Apache-2.0
// Copies values between a tensor of a Hugging Face file and a block of one of our weights, with
// transposition and dtype conversion, in ranges of rows, so that neither must be in memory whole.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"
#include "core/graph/type.h"
#include "tasks/interop/hf_weights.h"

namespace tessera {

// A block of a weight in memory.
struct OurBlock {
  const Region& block;
  DType dtype;  // f32, bf16 or f64.
  std::span<std::byte> bytes;
};

// `values` are the given rows of the tensor. Copies the values that are also in the part and in the
// block.
void copy_from_hf(const HfTensor& tensor, const HfPart& part, RowRange rows,
                  std::span<const float> values, const OurBlock& ours);
void copy_to_hf(const HfTensor& tensor, const HfPart& part, RowRange rows, const OurBlock& ours,
                std::span<float> values);

// The smallest block of our weight that holds the part's values of these rows of the tensor; empty
// if it has none there.
Region block_for(const HfTensor& tensor, const HfPart& part, RowRange rows);

// Whether ranges of rows are contiguous in our weight, too, so that it can be read by ranges.
bool follows_rows(const HfTensor& tensor, const HfPart& part, const Type& ours);

}  // namespace tessera
