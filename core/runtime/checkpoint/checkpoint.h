// SPDX-License-Identifier: Apache-2.0
// A checkpoint: a directory with the arrays of a run at one step, which appears completely or not
// at all (docs/formats.md). Each host writes what it owns to its own HDF5 file; index.h5 presents
// whole arrays to any HDF5 client; Tessera reads with tables in separate files
// (checkpoint_table.h). This file writes and reads one checkpoint; checkpoint_store.h manages those
// of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/devices/device.h"
#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {

// The bytes of an array: in the host's memory, or in a device's, from which they are copied piece
// by piece as they are written.
class ArrayBytes {
 public:
  ArrayBytes() = default;
  ArrayBytes(std::span<const std::byte> host) : host_(host) {}     // NOLINT: implicit.
  ArrayBytes(const std::vector<std::byte>& host) : host_(host) {}  // NOLINT
  ArrayBytes(const DeviceBuffer& device) : device_(device) {}      // NOLINT

  size_t size() const;
  // Calls `use` with the bytes [offset, offset + size), which are valid only during the call.
  void read(int64_t offset, int64_t size,
            const std::function<void(std::span<const std::byte>)>& use) const;
  // Its device is null if the bytes are the host's.
  const DeviceBuffer& device() const { return device_; }

 private:
  std::span<const std::byte> host_;
  DeviceBuffer device_;
};

// An array of the run or a piece of it. A host that holds several pieces passes several of these.
struct CheckpointArray {
  std::string path;  // "params/embedding/table", "learner/m/embedding/table", …
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;   // Shape of the whole array.
  std::optional<Region> block;  // The piece; unset: the whole array.
  ArrayBytes bytes;
};

// Bytes that a host writes.
struct ShardBytes {
  int64_t file = 0;  // Bytes of the HDF5 file.
  int64_t table = 0;
  int64_t arrays = 0;  // Bytes of the arrays' contents.
};

// The two halves of writing a checkpoint: every host writes its shard into `directory`; when all
// are done, one of them writes the index from the shards' tables. Both sync what they wrote to
// disk. `on_read` is called after the memory of each array, in order, has been read. `shards`:
// where the shards are if not in `directory`; it may be a URL.
ShardBytes write_checkpoint_shard(const std::filesystem::path& directory,
                                  const CheckpointInfo& info,
                                  const std::vector<CheckpointArray>& arrays,
                                  const CheckpointHost& host = {},
                                  const std::function<void()>& on_read = {});
void write_checkpoint_index(const std::filesystem::path& directory, const CheckpointInfo& info,
                            int64_t num_hosts = 1, const std::filesystem::path& shards = {});

// Reads a checkpoint that was written in any pieces. Every byte is checked against a checksum:
// arrays when they are read, all else when the checkpoint is opened. A missing, short or damaged
// file is a DamagedCheckpoint error that names it; HDF5 alone would return zeros.
class Checkpoint {
 public:
  // `remedy` is appended to messages about damage: what the user can do.
  explicit Checkpoint(const std::filesystem::path& directory, std::string remedy = "");

  const std::filesystem::path& directory() const { return directory_; }
  const CheckpointInfo& info() const { return opened_.info; }
  const std::map<std::string, CheckpointEntry>& entries() const { return opened_.entries; }

  // Error if no array has this name (with the nearest), or if it has another dtype or shape.
  void expect(const std::string& path, DType dtype, const std::vector<int64_t>& shape) const;
  // Reads a block of an array, in tiles that are checked. Thread-safe.
  void read_block(const std::string& path, const Region& block, std::span<std::byte> bytes) const;

 private:
  const CheckpointEntry& entry(const std::string& path) const;
  void read_tile(const OpenedPiece& piece, int64_t number, const std::string& path,
                 std::span<std::byte> bytes) const;
  void read_piece(const OpenedPiece& piece, const Region& wanted, const std::string& path,
                  std::span<std::byte> bytes, int64_t element_bytes) const;

  std::filesystem::path directory_;
  std::string remedy_;
  OpenedCheckpoint opened_;
};

}  // namespace tessera
