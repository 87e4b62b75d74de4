// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch: a table of them that travels with the launch, so that it needs no
// memory on the device and no copy before the launch.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Arguments of a launch may have this many bytes since CUDA 12.1.
inline constexpr int kMostArgumentBytes = 32764;

// A block works on kBlock neighbouring elements of one tensor. Blocks are numbered over all
// launches, if there are more tensors than a table holds. An Entry has `elements` and
// `first_block`.
template <typename Entry, int kTensors, int64_t kBlock>
struct TensorTable {
  static constexpr int kMost = kTensors;
  static constexpr int64_t kBlockElements = kBlock;
  static constexpr int64_t blocks_of(int64_t elements) { return (elements + kBlock - 1) / kBlock; }
  int tensors;
  uint32_t blocks_before;   // Blocks of earlier launches.
  Entry entries[kTensors];  // By first_block.
};

}  // namespace tessera::cuda
