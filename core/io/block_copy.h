// SPDX-License-Identifier: Apache-2.0
// Copies between a whole row-major array and a block of it that is stored by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/shard.h"

namespace tessera {

// Where a block lies in an array.
struct BlockPlace {
  std::vector<int64_t> array_shape;
  Block block;
  int64_t element_bytes = 0;

  // Whether the block's bytes are consecutive in the array, and where they begin then.
  bool is_contiguous() const;
  int64_t begin_bytes() const;
  int64_t block_bytes() const;
};

void take_block(const BlockPlace& place, const std::byte* array, std::byte* block);
void put_block(const BlockPlace& place, const std::byte* block, std::byte* array);

}  // namespace tessera
