// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint.h"

#include <algorithm>
#include <sstream>

#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/hdf5.h"
#include "core/runtime/checkpoint_files.h"
#include "core/runtime/checkpoint_tiles.h"

namespace tessera {
namespace {

DType dtype_of(std::string_view stored_name, const std::string& where) {
  for (DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kI32, DType::kU32, DType::kBool})
    if (stored_type_name(stored_type(dtype)) == stored_name) return dtype;
  fail("{}: '{}' is no element type of a checkpoint", where, stored_name);
}

// The index's list of arrays: lines "f32 [300 64] path".
std::map<std::string, Checkpoint::Entry> parse_list(const std::string& list,
                                                    const std::string& where) {
  std::map<std::string, Checkpoint::Entry> entries;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    const size_t open = line.find(" [");
    const size_t close = line.find("] ");
    if (open == std::string::npos || close == std::string::npos || close < open)
      fail("{}: cannot make sense of the line '{}'", where, line);
    Checkpoint::Entry entry{dtype_of(line.substr(0, open), where), {}};
    std::istringstream sizes(line.substr(open + 2, close - open - 2));
    for (int64_t size = 0; sizes >> size;) entry.shape.push_back(size);
    entries[line.substr(close + 2)] = std::move(entry);
  }
  return entries;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, " "));
}

// One host's part of one array.
struct Piece {
  Hdf5Block block;  // Of the whole array.
  Hdf5Dataset dataset;
  Tiles tiles;
  std::vector<int64_t> checksums;  // One a tile.
};

// A block of a piece, as one of the array.
Hdf5Block moved(Hdf5Block block, const std::vector<int64_t>& by) {
  for (size_t i = 0; i < by.size(); ++i) block.offset[i] += by[i];
  return block;
}

}  // namespace

struct Checkpoint::Impl {
  std::filesystem::path directory;
  CheckpointInfo info;
  std::map<std::string, Entry> entries;
  int64_t version = 0;
  std::vector<Hdf5File> shards;
  std::map<std::string, std::vector<Piece>> pieces;

  const Entry& entry(const std::string& path) const;
  void open_index();
  void open_shard(int64_t host, int64_t bytes, int64_t num_hosts);
  void add_piece(const Hdf5File& shard, const std::string& name, const std::string& where);
  void check_whole() const;
  void read_tile(const Piece& piece, int64_t number, const std::string& path,
                 std::span<std::byte> bytes) const;
};

const Checkpoint::Entry& Checkpoint::Impl::entry(const std::string& path) const {
  const auto found = entries.find(path);
  if (found != entries.end()) return found->second;
  std::vector<std::string> paths;
  for (const auto& [name, unused] : entries) paths.push_back(name);
  fail("{}: no array '{}'{}", directory.string(), path, did_you_mean(path, paths));
}

void Checkpoint::Impl::open_index() {
  const std::string index_path = (directory / kCheckpointIndexName).string();
  const Hdf5File index = Hdf5File::open(index_path);
  version = index.integer_attribute("/", "format_version");
  if (version < 1 || version > kCheckpointVersion)
    fail("{}: a checkpoint of format {}; this build reads formats 1 to {}", index_path, version,
         kCheckpointVersion);
  info.step = index.integer_attribute("/", "step");
  info.seed = static_cast<uint64_t>(index.integer_attribute("/", "seed"));
  info.input_position = index.integer_attribute("/", "input_position");
  info.graph_hash = index.text_attribute("/", "graph_hash");
  info.hparams = index.read_text(kCheckpointHparams);
  for (const std::string& name : index.attribute_names("input_extra"))
    info.input_extra[name] = index.text_attribute("input_extra", name);
  entries = parse_list(index.read_text(kCheckpointArrays), index_path + ":" + kCheckpointArrays);
  const std::vector<int64_t> shard_bytes = index.integers_attribute("/", "shard_bytes");
  if (shard_bytes.empty()) fail("{}: names no shards", index_path);
  for (size_t host = 0; host < shard_bytes.size(); ++host)
    open_shard(static_cast<int64_t>(host), shard_bytes[host],
               static_cast<int64_t>(shard_bytes.size()));
  check_whole();
}

void Checkpoint::Impl::open_shard(int64_t host, int64_t bytes, int64_t num_hosts) {
  const std::filesystem::path path = directory / checkpoint_shard_name(host);
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) fail("{}: the shard is missing or unreadable: {}", path.string(), error.message());
  if (size != bytes)
    fail("{}: the shard has {} bytes; it was written with {}", path.string(), size, bytes);
  Hdf5File shard = Hdf5File::open(path);
  if (shard.integer_attribute("/", "step") != info.step ||
      shard.integer_attribute("/", "host") != host ||
      shard.integer_attribute("/", "num_hosts") != num_hosts)
    fail("{}: the shard belongs to another checkpoint", path.string());
  for (const std::string& name : shard.dataset_paths())
    add_piece(shard, name, path.string() + ":" + name);
  shards.push_back(std::move(shard));
}

void Checkpoint::Impl::add_piece(const Hdf5File& shard, const std::string& name,
                                 const std::string& where) {
  const std::string path = checkpoint_array_name(name);
  const auto entry = entries.find(path);
  if (entry == entries.end()) fail("{}: the index does not know this array", where);
  const std::vector<int64_t>& whole = entry->second.shape;
  Hdf5Dataset dataset = shard.dataset(name, ChunkCache::kNone);
  const Hdf5Block block{shard.integers_attribute(name, "offset"), dataset.shape()};
  if (dataset.type() != stored_type(entry->second.dtype) || block.shape.size() != whole.size() ||
      block.offset.size() != whole.size())
    fail("{}: {}{} is no part of the {}{} that the index shows", where,
         stored_type_name(dataset.type()), shape_text(block.shape), dtype_name(entry->second.dtype),
         shape_text(whole));
  for (size_t i = 0; i < whole.size(); ++i)
    if (block.offset[i] < 0 || block.offset[i] + block.shape[i] > whole[i])
      fail("{}: the piece at {} of shape {} lies outside {}", where, shape_text(block.offset),
           shape_text(block.shape), shape_text(whole));
  if (!dataset.fully_stored()) fail("{}: part of it was never written", where);
  // Format 1 has one checksum of the whole piece.
  const std::vector<int64_t> chunk = shard.has_attribute(name, "chunk")
                                         ? shard.integers_attribute(name, "chunk")
                                         : dataset.shape();
  if (chunk.size() != block.shape.size() ||
      std::any_of(chunk.begin(), chunk.end(), [](int64_t size) { return size < 0; }) ||
      (dataset.elements() > 0 && block_elements(chunk) <= 0))
    fail("{}: chunks of {} are none of {}", where, shape_text(chunk), shape_text(block.shape));
  Piece piece{block, std::move(dataset), Tiles(block.shape, chunk),
              shard.integers_attribute(name, "crc32c")};
  if (version > 1 && static_cast<int64_t>(piece.checksums.size()) != piece.tiles.count())
    fail("{}: {} checksums of {} chunks", where, piece.checksums.size(), piece.tiles.count());
  pieces[path].push_back(std::move(piece));
}

// Pieces that do not overlap and have as many elements as the whole are the whole.
void Checkpoint::Impl::check_whole() const {
  for (const auto& [path, entry] : entries) {
    std::vector<Hdf5Block> blocks;
    int64_t elements = 0;
    if (const auto found = pieces.find(path); found != pieces.end()) {
      for (const Piece& piece : found->second) {
        elements += piece.dataset.elements();
        blocks.push_back(piece.block);
      }
    }
    if (!disjoint(blocks)) fail("{}: two pieces of '{}' overlap", directory.string(), path);
    if (elements != block_elements(entry.shape))
      fail("{}: the shards hold {} of the {} elements of '{}'", directory.string(), elements,
           block_elements(entry.shape), path);
  }
}

void Checkpoint::Impl::read_tile(const Piece& piece, int64_t number, const std::string& path,
                                 std::span<std::byte> bytes) const {
  piece.dataset.read(piece.tiles.at(number), bytes);
  if (static_cast<int64_t>(crc32c(bytes)) != piece.checksums[static_cast<size_t>(number)])
    fail("{}: '{}' is damaged: its checksum does not match", directory.string(), path);
}

Checkpoint::Checkpoint(const std::filesystem::path& directory) : impl_(std::make_unique<Impl>()) {
  impl_->directory = directory;
  impl_->open_index();
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

const std::filesystem::path& Checkpoint::directory() const { return impl_->directory; }
const CheckpointInfo& Checkpoint::info() const { return impl_->info; }
const std::map<std::string, Checkpoint::Entry>& Checkpoint::entries() const {
  return impl_->entries;
}

void Checkpoint::expect(const std::string& path, DType dtype,
                        const std::vector<int64_t>& shape) const {
  const Entry& entry = impl_->entry(path);
  if (entry.dtype != dtype || entry.shape != shape)
    fail("{}: '{}' is {}{}; expected {}{}", impl_->directory.string(), path,
         dtype_name(entry.dtype), shape_text(entry.shape), dtype_name(dtype), shape_text(shape));
}

void Checkpoint::read(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
                      std::span<std::byte> bytes) const {
  expect(path, dtype, shape);
  read_block(path, std::vector<int64_t>(shape.size(), 0), shape, bytes);
}

void Checkpoint::read_block(const std::string& path, const std::vector<int64_t>& offset,
                            const std::vector<int64_t>& shape, std::span<std::byte> bytes) const {
  const Entry& entry = impl_->entry(path);
  const int64_t element_bytes = dtype_bytes(entry.dtype);
  CHECK(static_cast<int64_t>(bytes.size()) == block_elements(shape) * element_bytes);
  const std::vector<int64_t>& whole = entry.shape;
  CHECK(offset.size() == whole.size() && shape.size() == whole.size(), "'{}': rank", path);
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(offset[i] >= 0 && offset[i] + shape[i] <= whole[i], "'{}': block outside", path);
  const Hdf5Block wanted{offset, shape};
  const auto pieces = impl_->pieces.find(path);
  if (pieces == impl_->pieces.end()) return;  // No elements: check_whole has counted.
  std::vector<std::byte> buffer;
  for (const Piece& piece : pieces->second) {
    Hdf5Block common;
    if (!intersect(piece.block, wanted, &common)) continue;
    for (int64_t i = 0; i < piece.tiles.count(); ++i) {
      const Hdf5Block tile = moved(piece.tiles.at(i), piece.block.offset);
      if (!intersect(tile, wanted, &common)) continue;
      const std::span<std::byte> run = run_within(tile, wanted, bytes, element_bytes);
      if (!run.empty()) {  // Straight to where it is wanted.
        impl_->read_tile(piece, i, path, run);
        continue;
      }
      buffer.resize(static_cast<size_t>(block_elements(tile.shape) * element_bytes));
      impl_->read_tile(piece, i, path, buffer);
      copy_common(tile, buffer, wanted, bytes, element_bytes);
    }
  }
}

void Checkpoint::verify() const {
  std::vector<std::byte> bytes;
  for (const auto& [path, pieces] : impl_->pieces) {
    const int64_t element_bytes = dtype_bytes(impl_->entries.at(path).dtype);
    for (const Piece& piece : pieces) {
      for (int64_t i = 0; i < piece.tiles.count(); ++i) {
        bytes.resize(static_cast<size_t>(block_elements(piece.tiles.at(i).shape) * element_bytes));
        impl_->read_tile(piece, i, path, bytes);
      }
    }
  }
}

}  // namespace tessera
