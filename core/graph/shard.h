// SPDX-License-Identifier: Apache-2.0
// The part of a global array that a device holds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/region.h"
#include "core/graph/mesh.h"
#include "core/graph/type.h"

namespace tessera {

// The region of a value of this type that `device` holds (for a partial value: holds a term of).
Region shard_block(const Type& type, const Mesh& mesh, int64_t device);

// Whether `device` is the first of the devices that hold the same block. It writes the block to
// checkpoints, and sums over the array count only its copy.
bool owns_block(const Type& type, const Mesh& mesh, int64_t device);

// Positions [begin, end) along the first axis of a value.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// The rows of a value that devices [first_device, first_device + count) hold together, as ascending
// ranges that do not touch. There may be several if the first axis is split over several slices.
std::vector<RowRange> rows_of(const Type& type, const Mesh& mesh, int64_t first_device,
                              int64_t count);

}  // namespace tessera
