// SPDX-License-Identifier: Apache-2.0
// Reads whole arrays of a checkpoint; any damage is an error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"

namespace tessera {

inline std::vector<std::byte> array_bytes(const Checkpoint& checkpoint, const std::string& path) {
  const CheckpointEntry& entry = checkpoint.entries().at(path);
  const Region whole = Region::whole(entry.shape);
  std::vector<std::byte> bytes(static_cast<size_t>(whole.elements() * dtype_bytes(entry.dtype)));
  checkpoint.read_block(path, whole, bytes);
  return bytes;
}

inline void read_arrays(const Checkpoint& checkpoint) {
  for (const auto& [path, entry] : checkpoint.entries()) array_bytes(checkpoint, path);
}

}  // namespace tessera
