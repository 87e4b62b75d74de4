// SPDX-License-Identifier: Apache-2.0
#include "core/graph/shard.h"

#include "core/graph/typing.h"

namespace tessera {

Block shard_block(const Type& type, const Mesh& mesh, int64_t device) {
  Block block;
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

}  // namespace tessera
