// SPDX-License-Identifier: Apache-2.0
// An opened checkpoint of any format: its arrays, and where the bytes of their pieces are.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {

// Where the bytes of one piece are.
class PieceBytes {
 public:
  virtual ~PieceBytes() = default;
  // Reads the tile `number`. Thread-safe.
  virtual void read(int64_t number, const Tiles& tiles, std::span<std::byte> bytes) const = 0;
};

// One host's part of one array.
struct OpenedPiece {
  Region block;  // Of the whole array.
  Tiles tiles;
  std::vector<uint32_t> checksums;  // One a tile.
  std::unique_ptr<PieceBytes> bytes;
};

struct OpenedCheckpoint {
  CheckpointInfo info;
  std::map<std::string, CheckpointEntry> entries;
  std::map<std::string, std::vector<OpenedPiece>> pieces;  // By array.
};

// Formats 1 and 2, which have no tables and are read with HDF5.
OpenedCheckpoint open_hdf5_checkpoint(const std::filesystem::path& directory);

}  // namespace tessera
