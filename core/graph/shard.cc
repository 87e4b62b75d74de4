// SPDX-License-Identifier: Apache-2.0
#include "core/graph/shard.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/typing.h"

namespace tessera {

Region shard_block(const Type& type, const Mesh& mesh, int64_t device) {
  Region block;
  for (const Axis& axis : type.axes) {
    const int64_t size = axis.size / mesh.size_along(axis.split);
    block.shape.push_back(size);
    block.origin.push_back(mesh.index_along(device, axis.split) * size);
  }
  return block;
}

bool owns_block(const Type& type, const Mesh& mesh, int64_t device) {
  for (const MeshAxis& axis : mesh.axes())
    if (!split_over(type, axis.name) && mesh.index_along(device, {axis.name}) != 0) return false;
  return true;
}

std::vector<RowRange> rows_of(const Type& type, const Mesh& mesh, int64_t first_device,
                              int64_t count) {
  CHECK(type.rank() > 0, "a scalar has no rows");
  std::vector<RowRange> held;
  for (int64_t device = first_device; device < first_device + count; ++device) {
    const Region block = shard_block(type, mesh, device);
    held.push_back({block.origin[0], block.origin[0] + block.shape[0]});
  }
  std::sort(held.begin(), held.end(),
            [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  std::vector<RowRange> rows;
  for (const RowRange& range : held) {
    if (rows.empty() || rows.back().end < range.begin) rows.push_back(range);
    rows.back().end = std::max(rows.back().end, range.end);
  }
  return rows;
}

}  // namespace tessera
