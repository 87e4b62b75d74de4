// SPDX-License-Identifier: Apache-2.0
// A checkpoint: a directory with the arrays of a run at one step, which appears whole or not at
// all (docs/formats.md). Each host writes what it owns to its own HDF5 file; index.h5 shows every
// array whole to any HDF5 client; Tessera itself reads by tables beside them (checkpoint_table.h).
// This is writing and reading one; checkpoint_store.h has many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/dtype.h"
#include "core/base/error.h"

namespace tessera {

constexpr int64_t kCheckpointVersion = 3;

// The bytes of an array: in the host's memory, or in a device's, from which they are copied piece
// by piece as they are written.
class ArrayBytes {
 public:
  ArrayBytes() = default;
  ArrayBytes(std::span<const std::byte> host) : host_(host) {}     // NOLINT: implicit.
  ArrayBytes(const std::vector<std::byte>& host) : host_(host) {}  // NOLINT
  ArrayBytes(const DeviceBuffer& device) : device_(device) {}      // NOLINT

  size_t size() const;
  // Calls `use` with the bytes [offset, offset + size), which it may look at only while it runs.
  void read(int64_t offset, int64_t size,
            const std::function<void(std::span<const std::byte>)>& use) const;
  // Its device is null if the bytes are the host's.
  const DeviceBuffer& device() const { return device_; }

 private:
  std::span<const std::byte> host_;
  DeviceBuffer device_;
};

// A piece of an array of the run. A host that holds all of it leaves `offset` and `piece` empty;
// one that holds several pieces gives several of these.
struct CheckpointArray {
  std::string path;  // "params/embedding/table", "learner/m/embedding/table", …
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;   // Of the whole array.
  std::vector<int64_t> offset;  // Where the piece begins.
  std::vector<int64_t> piece;   // The piece's shape.
  ArrayBytes bytes;
};

// What a checkpoint holds beside arrays.
struct CheckpointInfo {
  int64_t step = 0;
  uint64_t seed = 0;
  int64_t input_position = 0;
  std::map<std::string, std::string> input_extra;
  std::string hparams;     // hparams.toml of the run.
  std::string graph_hash;  // Of the unlowered training graph.
};

// This host's place among those that save.
struct CheckpointHost {
  int64_t index = 0;
  int64_t count = 1;
};

class PendingReads;

// Bytes of the files that a host writes.
struct ShardBytes {
  int64_t arrays = 0;  // The HDF5 file.
  int64_t table = 0;
};

// The two halves of writing one: every host writes its shard into `directory`; when all are done,
// one of them writes the index, which reads the shards' tables. Both sync what they wrote. `reads`,
// which holds the arrays' bytes in their order, is told of each array that has been read.
ShardBytes write_checkpoint_shard(const std::filesystem::path& directory,
                                  const CheckpointInfo& info,
                                  const std::vector<CheckpointArray>& arrays,
                                  const CheckpointHost& host = {}, PendingReads* reads = nullptr);
void write_checkpoint_index(const std::filesystem::path& directory, const CheckpointInfo& info,
                            int64_t num_hosts = 1);

// A checkpoint whose files are missing, short, damaged or not its own.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

// Reads a checkpoint by whatever pieces it was written in. Every byte is checked against a checksum
// when the checkpoint is opened, or, if it is an array's, when it is read: a missing, short or
// damaged file is a DamagedCheckpoint that names it, never zeros, which HDF5 itself would give.
class Checkpoint {
 public:
  // `remedy` goes with messages about damage: what the user can do.
  explicit Checkpoint(const std::filesystem::path& directory, std::string remedy = "");
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  struct Entry {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
  };
  const std::filesystem::path& directory() const;
  const CheckpointInfo& info() const;
  const std::map<std::string, Entry>& entries() const;  // By path.

  // Error if there is no array of this name (with the nearest), or if it is of another dtype or
  // shape.
  void expect(const std::string& path, DType dtype, const std::vector<int64_t>& shape) const;
  // An array whole, or a block of it: what holds it is read, in tiles that are checked. Any thread.
  void read(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
            std::span<std::byte> bytes) const;
  void read_block(const std::string& path, const std::vector<int64_t>& offset,
                  const std::vector<int64_t>& shape, std::span<std::byte> bytes) const;
  // Reads everything once, so that damage anywhere is an Error.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
