// SPDX-License-Identifier: Apache-2.0
// The contents of a checkpoint, the names of its files, and its tables: text files with the
// position of each piece in the HDF5 files and checksums of all their bytes (docs/formats.md).
// Tessera reads checkpoints only with these, because HDF5 may crash on a damaged file before it
// checks anything. Pieces are read and checked in tiles.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/region.h"
#include "core/io/file.h"

namespace tessera {

constexpr int64_t kCheckpointVersion = 3;

// The data of a checkpoint besides arrays.
struct CheckpointInfo {
  int64_t step = 0;
  uint64_t seed = 0;
  int64_t input_position = 0;
  std::map<std::string, std::string> input_extra;
  std::string hparams;  // hparams.toml of the run.
};

// This host's place among the hosts that save.
struct CheckpointHost {
  int64_t index = 0;
  int64_t count = 1;
};

// An array of a checkpoint.
struct CheckpointEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// A checkpoint whose files are missing, short, damaged or those of another checkpoint.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

// A checkpoint that another version of Tessera has written. It is not damaged.
class UnknownFormat : public Error {
 public:
  explicit UnknownFormat(const std::string& where, int64_t version);
};

// Names of the files in a checkpoint's directory. Tessera reads the tables; HDF5 files are for
// other programs.
inline constexpr const char* kCheckpointIndexName = "index.h5";
inline std::string checkpoint_shard_name(int64_t host) {
  return fmt::format("host_{:05}.h5", host);
}

inline constexpr const char* kCheckpointIndexTableName = "index.table";
inline std::string checkpoint_table_name(int64_t host) {
  return fmt::format("host_{:05}.table", host);
}

// A piece is a dataset with the array's name, followed by its origin if it is not the whole array:
// "params/w@0_1024". So a host can hold several pieces of one array.
inline std::string checkpoint_piece_name(const std::string& array,
                                         const std::vector<int64_t>& shape, const Region& block) {
  return block.shape == shape ? array : fmt::format("{}@{}", array, fmt::join(block.origin, "_"));
}

// Texts in the index. kCheckpointArrays lists the arrays, one per line: "f32 [300 64] path".
inline constexpr const char* kCheckpointHparams = "hparams";
inline constexpr const char* kCheckpointArrays = "arrays";

// The element types of arrays.
inline constexpr std::array<DType, 6> kCheckpointDTypes = {DType::kF64, DType::kF32, DType::kBF16,
                                                           DType::kI32, DType::kU32, DType::kBool};

// Returns whether the block is a part of an array of this shape; false for any invalid sizes.
bool lies_in(const Region& block, const std::vector<int64_t>& shape);
// Formats a shape for lists and messages: "[300 64]".
inline std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, " "));
}

// The tiles of a piece, which are read and checked as a unit. A tile is a run of the piece's
// row-major bytes, at most 16 MiB.
class Tiles {
 public:
  // Divides a piece of shape `shape` into tiles of shape `tile`, smaller at the edges.
  Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile);

  int64_t count() const { return count_; }
  // Returns tile `number`. Tiles are numbered in the order of their bytes in the piece.
  Region at(int64_t number) const;

 private:
  std::vector<int64_t> shape_, tile_, grid_;
  int64_t count_ = 1;
};

// A part of an array in a shard: consecutive bytes of the file, in tiles with a checksum each.
struct CheckpointPiece {
  std::string array;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // Shape of the whole array.
  Region block;                // Place of the piece in the array.
  std::vector<int64_t> tile;   // The shape of the tiles.
  int64_t file_offset = 0;
  std::vector<uint32_t> checksums;

  int64_t bytes() const;
};

// The table of one shard. Parsed tables are valid: blocks are inside their arrays, pieces are
// inside the file and do not overlap, and each tile has a checksum.
struct ShardTable {
  int64_t step = 0;
  CheckpointHost host;
  int64_t bytes = 0;           // Size of the HDF5 file.
  uint32_t rest_checksum = 0;  // Checksum of all bytes of the file outside pieces, in order.
  std::vector<CheckpointPiece> pieces;
};

// The table of the whole checkpoint.
struct IndexTable {
  struct File {
    int64_t bytes = 0;
    uint32_t checksum = 0;
  };
  CheckpointInfo info;
  File index;                // index.h5.
  std::vector<File> tables;  // Tables of the shards, by host.
};

// Write and parse tables. A text ends with a checksum of all before it. Parsing anything else is an
// Error that begins with `where`.
std::string shard_table_text(const ShardTable& table);
ShardTable parse_shard_table(std::string_view text, const std::string& where);
std::string index_table_text(const IndexTable& table);
IndexTable parse_index_table(std::string_view text, const std::string& where);

// Reads a table's text; Error if the path is not a regular file, or is too large for a table.
std::string read_table(const std::filesystem::path& path);
// Compute the checksums of a whole file, and of the bytes of a shard outside pieces.
uint32_t file_checksum(const ByteFile& file);
uint32_t rest_checksum(const ByteFile& file, const ShardTable& table);

// One host's part of one array.
struct OpenedPiece {
  Region block;  // Place of the piece in the whole array.
  Tiles tiles;
  std::vector<uint32_t> checksums;  // One for each tile.
  // Reads a tile's bytes. Thread-safe.
  std::function<void(const Region& tile, std::span<std::byte> bytes)> read;
};

// An opened checkpoint: its arrays, and where the bytes of their pieces are.
struct OpenedCheckpoint {
  CheckpointInfo info;
  std::map<std::string, CheckpointEntry> entries;
  std::map<std::string, std::vector<OpenedPiece>> pieces;  // By array.
};

}  // namespace tessera
