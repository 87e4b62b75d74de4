// SPDX-License-Identifier: Apache-2.0
// Which part of a global array a device holds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/type.h"

namespace tessera {

// A box of a global array, in its axes' order: [origin, origin + shape) along each.
struct Block {
  std::vector<int64_t> origin;
  std::vector<int64_t> shape;
  bool operator==(const Block&) const = default;
};

// The block of a value of this type that `device` holds; of a partial value, the block it holds a
// term of.
Block shard_block(const Type& type, const Mesh& mesh, int64_t device);

// Whether `device` is the first of those that hold the same block: the one that writes it to a
// checkpoint and whose part counts once in a sum.
bool owns_block(const Type& type, const Mesh& mesh, int64_t device);

}  // namespace tessera
