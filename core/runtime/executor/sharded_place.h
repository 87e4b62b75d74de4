// SPDX-License-Identifier: Apache-2.0
// Copies between the host and an array that the devices of this process hold in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/type.h"
#include "core/runtime/executor/device_executor.h"

namespace tessera {

using DeviceParts = std::vector<std::unique_ptr<DeviceExecutor>>;

// Offset of an array's part in the arena of each device of this process; nullopt: the device's
// stage does not hold the array.
using DeviceOffsets = std::vector<std::optional<int64_t>>;

struct ShardedPlace {
  const std::string& name;
  const Type& type;  // Global type.
  const Mesh& mesh;
  const DeviceOffsets& offsets;
};

// Returns the byte at which a block begins in a device's part of an array. Error if it is not
// contiguous there.
int64_t local_begin(const ShardedPlace& place, const ShardBlock& block);

// Writes a whole array: each device takes its blocks.
void write_whole(const ShardedPlace& place, const DeviceParts& parts,
                 std::span<const std::byte> bytes);
// Reads what these devices hold of an array to its places in the whole; returns how many bytes.
int64_t read_held(const ShardedPlace& place, const DeviceParts& parts, std::span<std::byte> bytes);
// Reads the whole array; an Error if these devices do not hold all of it.
void read_whole(const ShardedPlace& place, const DeviceParts& parts, std::span<std::byte> bytes);
// Writes the rows that types give to these devices together (rows_of): each takes its blocks.
void write_rows(const ShardedPlace& place, const DeviceParts& parts,
                std::span<const std::byte> bytes);

}  // namespace tessera
