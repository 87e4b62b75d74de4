// SPDX-License-Identifier: Apache-2.0
// Opens a checkpoint by its tables.
#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_files.h"
#include "core/runtime/checkpoint/checkpoint_pieces.h"
#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {
namespace {

constexpr int64_t kAheadBytes = int64_t{8} << 20;
constexpr int64_t kGapBytes = int64_t{64} << 10;

// A shard that knows how far it was read. Whoever reads on where the last read ended most likely
// reads the whole file, so the disk is to fetch what follows meanwhile, across arrays too.
class ShardFile {
 public:
  explicit ShardFile(ByteFile file) : file_(std::move(file)) {}
  const ByteFile& file() const { return file_; }

  void read_at(int64_t offset, std::span<std::byte> bytes) const {
    const int64_t end = offset + std::ssize(bytes), before = end_.exchange(end);
    const bool goes_on = offset >= before && offset - before <= kGapBytes;
    if (!goes_on) fetched_ = end;
    const int64_t from = std::max(fetched_.load(), end);
    if (goes_on && end + kAheadBytes - from >= kAheadBytes / 2) {
      file_.prefetch(from, end + kAheadBytes - from);
      fetched_ = end + kAheadBytes;
    }
    file_.read_at(offset, bytes);
  }

 private:
  ByteFile file_;
  // For hints alone, so threads may disturb each other.
  mutable std::atomic<int64_t> end_ = 0, fetched_ = 0;
};

class FilePieceBytes final : public PieceBytes {
 public:
  FilePieceBytes(std::shared_ptr<const ShardFile> file, int64_t offset, int64_t element_bytes)
      : file_(std::move(file)), offset_(offset), element_bytes_(element_bytes) {}

  void read(int64_t number, const Tiles& tiles, std::span<std::byte> bytes) const override {
    file_->read_at(offset_ + tiles.elements_before(number) * element_bytes_, bytes);
  }

 private:
  std::shared_ptr<const ShardFile> file_;
  int64_t offset_, element_bytes_;
};

void compare(const std::filesystem::path& path, int64_t bytes, int64_t expected) {
  if (bytes != expected)
    fail("{}: the file has {} bytes; it was written with {}", path.string(), bytes, expected);
}

ShardTable checked_table(const std::filesystem::path& path, const IndexTable& index, size_t host) {
  const std::string text = read_table(path);
  compare(path, std::ssize(text), index.tables[host].bytes);
  if (crc32c(std::as_bytes(std::span(text))) != index.tables[host].checksum)
    fail("{}: damaged, or it belongs to another checkpoint: its checksum does not match",
         path.string());
  ShardTable table = parse_shard_table(text, path.string());
  if (table.step != index.info.step || table.host.index != static_cast<int64_t>(host) ||
      table.host.count != std::ssize(index.tables))
    fail("{}: the table belongs to another checkpoint", path.string());
  return table;
}

void add_piece(const CheckpointPiece& piece, const std::shared_ptr<const ShardFile>& file,
               OpenedCheckpoint* opened) {
  const Checkpoint::Entry entry{piece.dtype, piece.shape};
  const auto [known, is_new] = opened->entries.emplace(piece.array, entry);
  if (!is_new && (known->second.dtype != entry.dtype || known->second.shape != entry.shape))
    fail("{}: '{}' is {}[{}] here and {}[{}] in an earlier shard", file->file().path().string(),
         piece.array, dtype_name(entry.dtype), fmt::join(entry.shape, " "),
         dtype_name(known->second.dtype), fmt::join(known->second.shape, " "));
  opened->pieces[piece.array].push_back(
      {piece.block, Tiles(piece.block.shape, piece.tile), piece.checksums,
       std::make_unique<FilePieceBytes>(file, piece.file_offset, dtype_bytes(piece.dtype))});
}

void open_shard(const std::filesystem::path& directory, const IndexTable& index, size_t host,
                OpenedCheckpoint* opened) {
  const auto number = static_cast<int64_t>(host);
  const ShardTable table = checked_table(directory / checkpoint_table_name(number), index, host);
  const auto shard =
      std::make_shared<const ShardFile>(ByteFile::open(directory / checkpoint_shard_name(number)));
  const ByteFile& file = shard->file();
  compare(file.path(), file.size(), table.bytes);
  if (rest_checksum(file, table) != table.rest_checksum)
    fail(
        "{}: damaged, or it belongs to another checkpoint: the checksum of what describes its "
        "arrays does not match",
        file.path().string());
  for (const CheckpointPiece& piece : table.pieces) add_piece(piece, shard, opened);
}

}  // namespace

OpenedCheckpoint open_tabled_checkpoint(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kCheckpointIndexTableName;
  const IndexTable index = parse_index_table(read_table(path), path.string());
  const ByteFile hdf5 = ByteFile::open(directory / kCheckpointIndexName);
  compare(hdf5.path(), hdf5.size(), index.index.bytes);
  if (file_checksum(hdf5) != index.index.checksum)
    fail("{}: damaged, or it belongs to another checkpoint: its checksum does not match",
         hdf5.path().string());
  OpenedCheckpoint opened{.info = index.info};
  for (size_t host = 0; host < index.tables.size(); ++host)
    open_shard(directory, index, host, &opened);
  return opened;
}

}  // namespace tessera
