// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

// Returns a region of a piece as a region of the array.
Region moved(Region region, const std::vector<int64_t>& by) {
  for (size_t i = 0; i < by.size(); ++i) region.origin[i] += by[i];
  return region;
}

// Checks that the pieces make up the whole array: they do not overlap and have as many elements.
void check_whole(const OpenedCheckpoint& opened, const std::filesystem::path& directory) {
  for (const auto& [path, entry] : opened.entries) {
    std::vector<Region> blocks;
    int64_t elements = 0;
    if (const auto found = opened.pieces.find(path); found != opened.pieces.end()) {
      for (const OpenedPiece& piece : found->second) {
        elements += piece.block.elements();
        blocks.push_back(piece.block);
      }
    }
    if (!are_disjoint(blocks)) fail("{}: two pieces of '{}' overlap", directory.string(), path);
    if (const int64_t expected = Region::whole(entry.shape).elements(); elements != expected)
      fail("{}: the shards hold {} of the {} elements of '{}'", directory.string(), elements,
           expected, path);
  }
}

// Turns any Error of `work` into a DamagedCheckpoint.
template <typename Work>
auto checked_for_damage(const std::string& remedy, Work work) {
  try {
    return work();
  } catch (const UnknownFormat&) {
    throw;
  } catch (const NoAccess&) {
    throw;
  } catch (const Error& error) {
    throw DamagedCheckpoint(remedy.empty() ? std::string(error.what())
                                           : fmt::format("{}; {}", error.what(), remedy));
  }
}

constexpr int64_t kAheadBytes = int64_t{8} << 20;
constexpr int64_t kGapBytes = int64_t{64} << 10;

// A shard file that remembers the end of the last read. A read that continues there is probably
// sequential, so the following bytes are prefetched, across arrays too.
class ShardFile {
 public:
  explicit ShardFile(ByteFile file) : file_(std::move(file)) {}
  const ByteFile& file() const { return file_; }

  void read_at(int64_t offset, std::span<std::byte> bytes) const {
    const int64_t end = offset + std::ssize(bytes), before = end_.exchange(end);
    const bool continues = offset >= before && offset - before <= kGapBytes;
    if (!continues) fetched_ = end;
    const int64_t from = std::max(fetched_.load(), end);
    if (continues && end + kAheadBytes - from >= kAheadBytes / 2) {
      file_.prefetch(from, end + kAheadBytes - from);
      fetched_ = end + kAheadBytes;
    }
    file_.read_at(offset, bytes);
  }

 private:
  ByteFile file_;
  // Only for prefetching, so races between threads are harmless.
  mutable std::atomic<int64_t> end_ = 0, fetched_ = 0;
};

void expect_size(const std::filesystem::path& path, int64_t bytes, int64_t expected) {
  if (bytes != expected)
    fail("{}: the file has {} bytes; it was written with {}", path.string(), bytes, expected);
}

ShardTable checked_table(const std::filesystem::path& path, const IndexTable& index, size_t host) {
  const std::string text = read_table(path);
  expect_size(path, std::ssize(text), index.tables[host].bytes);
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
  const CheckpointEntry entry{piece.dtype, piece.shape};
  const auto [known, is_new] = opened->entries.emplace(piece.array, entry);
  if (!is_new && (known->second.dtype != entry.dtype || known->second.shape != entry.shape))
    fail("{}: '{}' is {}{} here and {}{} in an earlier shard", file->file().path().string(),
         piece.array, dtype_name(entry.dtype), shape_text(entry.shape),
         dtype_name(known->second.dtype), shape_text(known->second.shape));
  const auto read = [file, offset = piece.file_offset, whole = Region::whole(piece.block.shape),
                     element_bytes = dtype_bytes(piece.dtype)](const Region& tile,
                                                               std::span<std::byte> bytes) {
    file->read_at(offset + Subarray(whole, tile, element_bytes).begin(), bytes);
  };
  opened->pieces[piece.array].push_back(
      {piece.block, Tiles(piece.block.shape, piece.tile), piece.checksums, read});
}

void open_shard(const std::filesystem::path& directory, const IndexTable& index, size_t host,
                OpenedCheckpoint* opened) {
  const auto number = static_cast<int64_t>(host);
  const ShardTable table = checked_table(directory / checkpoint_table_name(number), index, host);
  const auto shard =
      std::make_shared<const ShardFile>(ByteFile::open(directory / checkpoint_shard_name(number)));
  const ByteFile& file = shard->file();
  expect_size(file.path(), file.size(), table.bytes);
  if (rest_checksum(file, table) != table.rest_checksum)
    fail(
        "{}: damaged, or it belongs to another checkpoint: the checksum of what describes its "
        "arrays does not match",
        file.path().string());
  for (const CheckpointPiece& piece : table.pieces) add_piece(piece, shard, opened);
}

// Checks every byte of the files except those of arrays, which are checked when read.
OpenedCheckpoint opened_checkpoint(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kCheckpointIndexTableName;
  const IndexTable index = parse_index_table(read_table(path), path.string());
  const ByteFile hdf5 = ByteFile::open(directory / kCheckpointIndexName);
  expect_size(hdf5.path(), hdf5.size(), index.index.bytes);
  if (file_checksum(hdf5) != index.index.checksum)
    fail("{}: damaged, or it belongs to another checkpoint: its checksum does not match",
         hdf5.path().string());
  OpenedCheckpoint opened{.info = index.info};
  for (size_t host = 0; host < index.tables.size(); ++host)
    open_shard(directory, index, host, &opened);
  check_whole(opened, directory);
  return opened;
}

}  // namespace

const CheckpointEntry& Checkpoint::entry(const std::string& path) const {
  const auto found = opened_.entries.find(path);
  if (found != opened_.entries.end()) return found->second;
  std::vector<std::string> paths;
  for (const auto& [name, unused] : opened_.entries) paths.push_back(name);
  fail("{}: no array '{}'{}", directory_.string(), path, did_you_mean(path, paths));
}

void Checkpoint::read_tile(const OpenedPiece& piece, int64_t number, const std::string& path,
                           std::span<std::byte> bytes) const {
  checked_for_damage(remedy_, [&] {
    piece.read(piece.tiles.at(number), bytes);
    if (crc32c(bytes) != piece.checksums[static_cast<size_t>(number)])
      fail("{}: '{}' is damaged: its checksum does not match", directory_.string(), path);
  });
}

void Checkpoint::read_piece(const OpenedPiece& piece, const Region& wanted, const std::string& path,
                            std::span<std::byte> bytes, int64_t element_bytes) const {
  std::vector<std::byte> buffer;
  for (int64_t i = 0; i < piece.tiles.count(); ++i) {
    const Region tile = moved(piece.tiles.at(i), piece.block.origin);
    const std::optional<Region> common = intersect(tile, wanted);
    if (!common) continue;
    const Subarray to(wanted, *common, element_bytes);
    if (*common == tile && to.is_contiguous()) {  // Read without a copy.
      read_tile(piece, i, path,
                bytes.subspan(static_cast<size_t>(to.begin()), static_cast<size_t>(to.bytes())));
      continue;
    }
    buffer.resize(static_cast<size_t>(tile.elements() * element_bytes));
    read_tile(piece, i, path, buffer);
    copy_region(Subarray(tile, *common, element_bytes), buffer.data(), to, bytes.data());
  }
}

Checkpoint::Checkpoint(const std::filesystem::path& directory, std::string remedy)
    : directory_(directory),
      remedy_(std::move(remedy)),
      opened_(checked_for_damage(remedy_, [&] { return opened_checkpoint(directory); })) {}

void Checkpoint::expect(const std::string& path, DType dtype,
                        const std::vector<int64_t>& shape) const {
  const CheckpointEntry& found = entry(path);
  if (found.dtype != dtype || found.shape != shape)
    fail("{}: '{}' is {}{}; expected {}{}", directory_.string(), path, dtype_name(found.dtype),
         shape_text(found.shape), dtype_name(dtype), shape_text(shape));
}

void Checkpoint::read_block(const std::string& path, const Region& block,
                            std::span<std::byte> bytes) const {
  const CheckpointEntry& whole = entry(path);
  const int64_t element_bytes = dtype_bytes(whole.dtype);
  CHECK(lies_in(block, whole.shape), "'{}': block outside", path);
  CHECK(std::ssize(bytes) == block.elements() * element_bytes);
  const auto pieces = opened_.pieces.find(path);
  if (pieces == opened_.pieces.end()) return;  // The array has no elements (check_whole).
  for (const OpenedPiece& piece : pieces->second)
    if (intersect(piece.block, block)) read_piece(piece, block, path, bytes, element_bytes);
}

}  // namespace tessera
