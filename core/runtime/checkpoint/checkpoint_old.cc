// SPDX-License-Identifier: Apache-2.0
// Opens a checkpoint of format 1 or 2, which has only HDF5 files: chunks with checksums of HDF5 and
// of Tessera. Only HDF5 can notice damage to its own structures; later formats have tables instead.
#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {
namespace {

DType dtype_stored_as(std::string_view stored_name, const std::string& where) {
  for (const DType dtype : kCheckpointDTypes)
    if (stored_type_name(stored_type(dtype)) == stored_name) return dtype;
  fail("{}: '{}' is not an element type of a checkpoint", where, stored_name);
}

// The index's list of arrays: lines "f32 [300 64] path".
std::map<std::string, CheckpointEntry> parse_list(const std::string& list,
                                                  const std::string& where) {
  std::map<std::string, CheckpointEntry> entries;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    const size_t open = line.find(" [");
    const size_t close = line.find("] ");
    if (open == std::string::npos || close == std::string::npos || close < open)
      fail("{}: cannot parse the line '{}'", where, line);
    CheckpointEntry entry{dtype_stored_as(line.substr(0, open), where), {}};
    std::istringstream sizes(line.substr(open + 2, close - open - 2));
    for (int64_t size = 0; sizes >> size;) entry.shape.push_back(size);
    entries[line.substr(close + 2)] = std::move(entry);
  }
  return entries;
}

// Error unless the piece is a part of the array in the index.
void check_block(const Hdf5Dataset& dataset, const Region& block, const CheckpointEntry& entry,
                 const std::string& where) {
  const std::vector<int64_t>& whole = entry.shape;
  if (dataset.type() != stored_type(entry.dtype) || block.shape.size() != whole.size() ||
      block.origin.size() != whole.size())
    fail("{}: {}{} is not a part of the {}{} that the index shows", where,
         stored_type_name(dataset.type()), shape_text(block.shape), dtype_name(entry.dtype),
         shape_text(whole));
  if (!lies_in(block, whole))
    fail("{}: the piece at {} of shape {} lies outside {}", where, shape_text(block.origin),
         shape_text(block.shape), shape_text(whole));
  if (!dataset.fully_stored()) fail("{}: part of it was never written", where);
}

bool are_chunks_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& chunk) {
  if (chunk.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (chunk[i] < std::min<int64_t>(shape[i], 1) || chunk[i] > std::max<int64_t>(shape[i], 1))
      return false;
  return true;
}

void add_piece(const std::shared_ptr<const Hdf5File>& shard, const std::string& name,
               const std::string& where, int64_t version, OpenedCheckpoint* opened) {
  const std::string path = checkpoint_array_name(name);
  const auto entry = opened->entries.find(path);
  if (entry == opened->entries.end()) fail("{}: the index does not list this array", where);
  const auto dataset = std::make_shared<const Hdf5Dataset>(shard->dataset(name, ChunkCache::kNone));
  const Region block{shard->integers_attribute(name, "offset"), dataset->shape()};
  check_block(*dataset, block, entry->second, where);
  // Format 1 has one checksum of the whole piece.
  const std::vector<int64_t> chunk = shard->has_attribute(name, "chunk")
                                         ? shard->integers_attribute(name, "chunk")
                                         : dataset->shape();
  if (!are_chunks_of(block.shape, chunk))
    fail("{}: chunks of {} do not fit {}", where, shape_text(chunk), shape_text(block.shape));
  OpenedPiece piece{block, Tiles(block.shape, chunk), {}, nullptr};
  for (const int64_t checksum : shard->integers_attribute(name, "crc32c"))
    piece.checksums.push_back(static_cast<uint32_t>(checksum));
  const bool enough = version > 1 ? std::ssize(piece.checksums) == piece.tiles.count()
                                  : std::ssize(piece.checksums) >= piece.tiles.count();
  if (!enough)
    fail("{}: {} checksums of {} chunks", where, piece.checksums.size(), piece.tiles.count());
  piece.read = [shard, dataset](const Region& tile, std::span<std::byte> bytes) {
    dataset->read(tile, bytes);
  };
  opened->pieces[path].push_back(std::move(piece));
}

void open_shard(const std::filesystem::path& path, int64_t host,
                const std::vector<int64_t>& shard_bytes, int64_t version,
                OpenedCheckpoint* opened) {
  const int64_t bytes = shard_bytes[static_cast<size_t>(host)];
  if (const int64_t size = ByteFile::open(path).size(); size != bytes)
    fail("{}: the file has {} bytes; it was written with {}", path.string(), size, bytes);
  const auto shard = std::make_shared<const Hdf5File>(Hdf5File::open(path));
  if (shard->integer_attribute("/", "step") != opened->info.step ||
      shard->integer_attribute("/", "host") != host ||
      shard->integer_attribute("/", "num_hosts") != std::ssize(shard_bytes))
    fail("{}: the shard belongs to another checkpoint", path.string());
  for (const std::string& name : shard->dataset_paths())
    add_piece(shard, name, path.string() + ":" + name, version, opened);
}

CheckpointInfo read_info(const Hdf5File& index) {
  CheckpointInfo info;
  info.step = index.integer_attribute("/", "step");
  info.seed = static_cast<uint64_t>(index.integer_attribute("/", "seed"));
  info.input_position = index.integer_attribute("/", "input_position");
  info.graph_hash = index.text_attribute("/", "graph_hash");
  info.hparams = index.read_text(kCheckpointHparams);
  for (const std::string& name : index.attribute_names("input_extra"))
    info.input_extra[name] = index.text_attribute("input_extra", name);
  return info;
}

}  // namespace

OpenedCheckpoint open_hdf5_checkpoint(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kCheckpointIndexName;
  ByteFile::open(path);  // HDF5 only gets regular files.
  const Hdf5File index = Hdf5File::open(path);
  const int64_t version = index.integer_attribute("/", "format_version");
  if (version < 1 || version > kCheckpointVersion) throw UnknownFormat(path.string(), version);
  if (version == kCheckpointVersion)
    fail("{}: the file is missing", (directory / kCheckpointIndexTableName).string());
  OpenedCheckpoint opened{.info = read_info(index)};
  opened.entries =
      parse_list(index.read_text(kCheckpointArrays), path.string() + ":" + kCheckpointArrays);
  const std::vector<int64_t> shard_bytes = index.integers_attribute("/", "shard_bytes");
  if (shard_bytes.empty()) fail("{}: names no shards", path.string());
  for (int64_t host = 0; host < std::ssize(shard_bytes); ++host)
    open_shard(directory / checkpoint_shard_name(host), host, shard_bytes, version, &opened);
  return opened;
}

}  // namespace tessera
