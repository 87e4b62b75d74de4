// SPDX-License-Identifier: Apache-2.0
// The tables of a checkpoint: text files that say what lies where in its HDF5 files, with a
// checksum for every byte of them (docs/formats.md). Tessera reads checkpoints by these alone,
// because HDF5 checks what it decodes too late, and may crash on a damaged file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/region.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/checkpoint/checkpoint_tiles.h"

namespace tessera {

// A part of an array in a shard: one run of its bytes, in tiles with a checksum each.
struct CheckpointPiece {
  std::string array;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // Of the whole array.
  Region block;                // Of it: this part.
  std::vector<int64_t> tile;   // The shape of the tiles.
  int64_t file_offset = 0;
  std::vector<uint32_t> checksums;

  int64_t bytes() const;
};

// Of one shard. Parsed ones are sound: blocks lie in their arrays, pieces in the file and apart
// from each other, and there is a checksum for each tile.
struct ShardTable {
  int64_t step = 0;
  CheckpointHost host;
  int64_t bytes = 0;           // Of the HDF5 file.
  uint32_t rest_checksum = 0;  // Of all its bytes that are in no piece, in their order.
  std::vector<CheckpointPiece> pieces;
};

// Of the whole checkpoint.
struct IndexTable {
  struct File {
    int64_t bytes = 0;
    uint32_t checksum = 0;
  };
  CheckpointInfo info;
  File index;                // index.h5.
  std::vector<File> tables;  // Of the shards, by host.
};

// The texts end with a checksum of what is before. Parsing refuses all that is not exactly such a
// text, with an Error that begins with `where`.
std::string shard_table_text(const ShardTable& table);
ShardTable parse_shard_table(std::string_view text, const std::string& where);
std::string index_table_text(const IndexTable& table);
IndexTable parse_index_table(std::string_view text, const std::string& where);

// A table's bytes; Error if it is no regular file, or too large to be a table.
std::string read_table(const std::filesystem::path& path);
// The checksum of a whole file, and of what of a shard is in no piece.
uint32_t file_checksum(const ByteFile& file);
uint32_t rest_checksum(const ByteFile& file, const ShardTable& table);

}  // namespace tessera
