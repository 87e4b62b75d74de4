// SPDX-License-Identifier: Apache-2.0
// Copies between the host and an array that the devices of this process hold in parts, each at the
// same offset in its arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/type.h"
#include "core/runtime/executor/device_executor.h"

namespace tessera {

struct ShardedPlace {
  const std::string& name;
  const Type& type;  // Global.
  const Mesh& mesh;
  int64_t offset = 0;
};

using DeviceParts = std::vector<std::unique_ptr<DeviceExecutor>>;

// Each device takes its block of a whole array.
void write_whole(const ShardedPlace& place, const DeviceParts& parts,
                 std::span<const std::byte> bytes);
// The whole array; an Error if these devices do not hold all of it.
void read_whole(const ShardedPlace& place, const DeviceParts& parts, std::span<std::byte> bytes);
// Each device takes its block of the rows that these devices hold together (rows_of).
void write_rows(const ShardedPlace& place, const DeviceParts& parts,
                std::span<const std::byte> bytes);

}  // namespace tessera
