// SPDX-License-Identifier: Apache-2.0
// What a block of a launch with a TensorTable works on.
#pragma once

#include "plugins/cuda/kernels/tensor_table.h"

namespace tessera::cuda {

// The last tensor that begins at this block or before it.
template <typename Entry, int kTensors, int64_t kBlock>
__device__ const Entry& tensor_of(const TensorTable<Entry, kTensors, kBlock>& table,
                                  uint32_t block) {
  int low = 0, high = table.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= block ? low : high) = middle;
  }
  return table.entries[low];
}

// Elements of a tensor.
struct BlockRange {
  int64_t begin, end;
};
template <typename Entry, int kTensors, int64_t kBlock>
__device__ BlockRange range_of(const TensorTable<Entry, kTensors, kBlock>&, const Entry& tensor,
                               uint32_t block) {
  const int64_t begin = (block - tensor.first_block) * kBlock;
  return {begin, min(begin + kBlock, tensor.elements)};
}

}  // namespace tessera::cuda
