// SPDX-License-Identifier: Apache-2.0
// Which part of a global array a device holds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/region.h"
#include "core/graph/mesh.h"
#include "core/graph/type.h"

namespace tessera {

// The region of a value of this type that `device` holds; of a partial value, the region it holds a
// term of.
Region shard_block(const Type& type, const Mesh& mesh, int64_t device);

// Whether `device` is the first of those that hold the same block: the one that writes it to a
// checkpoint and whose part counts once in a sum.
bool owns_block(const Type& type, const Mesh& mesh, int64_t device);

// Positions [begin, end) along the first axis of a value.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// What `count` devices from `first_device` on hold of a value's first axis together: ascending
// ranges that do not touch. They need not be contiguous where an axis is split over several slices.
std::vector<RowRange> rows_of(const Type& type, const Mesh& mesh, int64_t first_device,
                              int64_t count);

}  // namespace tessera
