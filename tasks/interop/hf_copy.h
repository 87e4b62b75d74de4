// SPDX-License-Identifier: Apache-2.0
// Values between a tensor of a Hugging Face file and a block of a weight of ours: reordered and
// converted, in runs of rows, so that neither side need be whole in memory.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"
#include "core/graph/shard.h"
#include "tasks/interop/hf_weights.h"

namespace tessera {

// A block of a weight, in memory.
struct OurBlock {
  const Region& block;
  DType dtype;  // f32, bf16 or f64.
  std::span<std::byte> bytes;
};

// `values` are the rows of the tensor. What the part has of them, and the block too, is copied.
void copy_from_hf(const HfTensor& tensor, const HfPart& part, RowRange rows,
                  std::span<const float> values, const OurBlock& ours);
void copy_to_hf(const HfTensor& tensor, const HfPart& part, RowRange rows, const OurBlock& ours,
                std::span<float> values);

// The smallest block of ours that holds what the part has of these rows.
Region block_for(const HfPart& part, RowRange rows);

// Whether runs of rows are runs of ours too, so that it can be read run by run.
bool follows_rows(const HfTensor& tensor, const HfPart& part, const Type& ours);

}  // namespace tessera
