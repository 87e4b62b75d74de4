// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint: shards, then the index over them. HDF5 lays out a shard and writes what
// describes its arrays. The arrays' bytes are written without HDF5, and read once: checksums are
// computed block by block on the way, while a block is in the cache. A CPU device's memory is not
// copied first.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {

size_t ArrayBytes::size() const {
  return device_.device != nullptr ? static_cast<size_t>(device_.bytes) : host_.size();
}

void ArrayBytes::read(int64_t offset, int64_t size,
                      const std::function<void(std::span<const std::byte>)>& use) const {
  if (device_.device == nullptr)
    return use(host_.subspan(static_cast<size_t>(offset), static_cast<size_t>(size)));
  device_.device->map(device_.address + offset, size, HostAccess::kRead, use);
}

namespace {

constexpr int64_t kTileBytes = int64_t{4} << 20;
// Bytes checksummed and written at a time; fits in a cache.
constexpr int64_t kBlockBytes = int64_t{512} << 10;
constexpr int64_t kPageBytes = 4096;

CheckpointPiece piece_of(const CheckpointArray& array) {
  CheckpointPiece piece{.array = array.path,
                        .dtype = array.dtype,
                        .shape = array.shape,
                        .block = array.block.value_or(Region::whole(array.shape))};
  piece.tile = hdf5_chunk(piece.block.shape, dtype_bytes(array.dtype), kTileBytes);
  CHECK(std::ssize(array.bytes) == piece.bytes(), "'{}': {} bytes", array.path, array.bytes.size());
  return piece;
}

// Writes the file without the arrays' bytes, and returns a table with their places.
ShardTable lay_out(const std::filesystem::path& path, const CheckpointInfo& info,
                   const std::vector<CheckpointArray>& arrays, const CheckpointHost& host) {
  Hdf5File shard = Hdf5File::create(path, kPageBytes);
  shard.set_attribute("/", "format_version", kCheckpointVersion);
  shard.set_attribute("/", "step", info.step);
  shard.set_attribute("/", "host", host.index);
  shard.set_attribute("/", "num_hosts", host.count);
  ShardTable table{.step = info.step, .host = host};
  for (const CheckpointArray& array : arrays) {
    CheckpointPiece piece = piece_of(array);
    const std::string name = checkpoint_piece_name(array.path, array.shape, piece.block);
    piece.file_offset =
        shard.create_reserved(name, stored_type(array.dtype), piece.block.shape).file_offset();
    shard.set_attribute(name, "shape", array.shape);
    shard.set_attribute(name, "offset", piece.block.origin);
    table.pieces.push_back(std::move(piece));
  }
  shard.close();
  return table;
}

// Writes a tile and returns its checksum.
uint32_t write_tile(ByteFile& file, int64_t offset, std::span<const std::byte> tile) {
  uint32_t checksum = 0;
  while (!tile.empty()) {
    const auto block = tile.first(std::min(tile.size(), static_cast<size_t>(kBlockBytes)));
    checksum = crc32c(block, checksum);
    file.write_at(offset, block);
    offset += std::ssize(block);
    tile = tile.subspan(block.size());
  }
  return checksum;
}

void write_arrays(ByteFile& file, const std::vector<CheckpointArray>& arrays, ShardTable* table,
                  const std::function<void()>& on_read) {
  WritebackThread writeback(file);
  for (size_t i = 0; i < arrays.size(); ++i) {
    CheckpointPiece& piece = table->pieces[i];
    const Tiles tiles(piece.block.shape, piece.tile);
    int64_t done = 0;
    for (int64_t tile = 0; tile < tiles.count(); ++tile) {
      const int64_t bytes = tiles.at(tile).elements() * dtype_bytes(piece.dtype);
      arrays[i].bytes.read(done, bytes, [&](std::span<const std::byte> each) {
        piece.checksums.push_back(write_tile(file, piece.file_offset + done, each));
      });
      done += bytes;
      writeback.wrote(piece.file_offset + done);
    }
    CHECK(done == piece.bytes(), "'{}': its tiles are not all of it", piece.array);
    if (on_read) on_read();
  }
}

}  // namespace

ShardBytes write_checkpoint_shard(const std::filesystem::path& directory,
                                  const CheckpointInfo& info,
                                  const std::vector<CheckpointArray>& arrays,
                                  const CheckpointHost& host,
                                  const std::function<void()>& on_read) {
  const std::filesystem::path path = directory / checkpoint_shard_name(host.index);
  ShardTable table = lay_out(path, info, arrays, host);
  ByteFile file = ByteFile::open_to_write(path);
  write_arrays(file, arrays, &table, on_read);
  table.bytes = file.size();
  table.rest_checksum = rest_checksum(file, table);
  file.sync();
  const std::string text = shard_table_text(table);
  write_file_atomically(directory / checkpoint_table_name(host.index), text);
  ShardBytes written{.file = table.bytes, .table = std::ssize(text)};
  for (const CheckpointPiece& piece : table.pieces) written.arrays += piece.bytes();
  return written;
}

namespace {

// An array in the shards.
struct Assembled {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  std::vector<Hdf5Source> sources;
  std::vector<std::byte> only;  // Value of an array of at most one element.
};

// Adds a host's table to the index; returns the bytes of the host's HDF5 file.
int64_t collect(const std::filesystem::path& directory, int64_t host, IndexTable* index,
                std::map<std::string, Assembled>* arrays) {
  const std::filesystem::path table_path = directory / checkpoint_table_name(host);
  const std::string text = read_table(table_path);
  const ShardTable table = parse_shard_table(text, table_path.string());
  index->tables.push_back({std::ssize(text), crc32c(std::as_bytes(std::span(text)))});
  const std::string shard_name = checkpoint_shard_name(host);
  std::optional<ByteFile> shard;  // Opened for the first single value.
  for (const CheckpointPiece& piece : table.pieces) {
    Assembled& array = (*arrays)[piece.array];
    array.type = stored_type(piece.dtype);
    array.shape = piece.shape;
    array.sources.push_back(
        {piece.block, shard_name, checkpoint_piece_name(piece.array, piece.shape, piece.block)});
    if (Region::whole(piece.shape).elements() > 1) continue;
    array.only.resize(static_cast<size_t>(piece.bytes()));
    if (!shard) shard.emplace(ByteFile::open(directory / shard_name));
    shard->read_at(piece.file_offset, array.only);
  }
  return table.bytes;
}

void write_info(Hdf5File& index, const CheckpointInfo& info) {
  index.set_attribute("/", "format_version", kCheckpointVersion);
  index.set_attribute("/", "step", info.step);
  index.set_attribute("/", "seed", static_cast<int64_t>(info.seed));
  index.set_attribute("/", "input_position", info.input_position);
  index.write_text(kCheckpointHparams, info.hparams);
  index.create_group("input_extra");
  for (const auto& [name, value] : info.input_extra)
    index.set_attribute("input_extra", name, value);
}

void write_arrays_whole(Hdf5File& index, const std::map<std::string, Assembled>& arrays) {
  std::string list;
  for (const auto& [name, array] : arrays) {
    list += fmt::format("{} {} {}\n", stored_type_name(array.type), shape_text(array.shape), name);
    // HDF5 has no virtual scalars, so the index holds single values itself.
    if (Region::whole(array.shape).elements() <= 1) {
      index.create_dataset(name, array.type, array.shape).write(array.only);
    } else {
      index.create_virtual(name, array.type, array.shape, array.sources);
    }
  }
  index.write_text(kCheckpointArrays, list);
}

}  // namespace

void write_checkpoint_index(const std::filesystem::path& directory, const CheckpointInfo& info,
                            int64_t num_hosts, const std::filesystem::path& shards) {
  IndexTable table{.info = info};
  std::map<std::string, Assembled> arrays;
  std::vector<int64_t> shard_bytes;
  for (int64_t host = 0; host < num_hosts; ++host)
    shard_bytes.push_back(collect(shards.empty() ? directory : shards, host, &table, &arrays));
  const std::filesystem::path path = directory / kCheckpointIndexName;
  Hdf5File index = Hdf5File::create(path);
  write_info(index, info);
  index.set_attribute("/", "shard_bytes", shard_bytes);
  write_arrays_whole(index, arrays);
  index.close();
  sync_file(path);
  const ByteFile written = ByteFile::open(path);
  table.index = {written.size(), file_checksum(written)};
  write_file_atomically(directory / kCheckpointIndexTableName, index_table_text(table));
}

}  // namespace tessera
