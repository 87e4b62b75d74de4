// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint.h"

#include <algorithm>
#include <sstream>

#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/hdf5.h"
#include "core/runtime/checkpoint_files.h"

namespace tessera {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  return elements;
}

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
  uint32_t checksum = 0;
};

// The part of `piece` that `wanted` asks for, if any.
bool intersect(const Hdf5Block& piece, const Hdf5Block& wanted, Hdf5Block* common) {
  *common = wanted;
  for (size_t i = 0; i < wanted.shape.size(); ++i) {
    const int64_t begin = std::max(piece.offset[i], wanted.offset[i]);
    const int64_t end =
        std::min(piece.offset[i] + piece.shape[i], wanted.offset[i] + wanted.shape[i]);
    if (begin >= end) return false;
    common->offset[i] = begin;
    common->shape[i] = end - begin;
  }
  return true;
}

std::vector<int64_t> minus(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

// Copies row-major `source` into `target`, an array of `target_shape`, at `offset`.
void place_block(std::span<const std::byte> source, const Hdf5Block& block,
                 std::span<std::byte> target, const std::vector<int64_t>& target_shape,
                 int64_t element_bytes) {
  const size_t rank = block.shape.size();
  const int64_t run = block.shape[rank - 1] * element_bytes;
  std::vector<int64_t> at(rank, 0);
  for (int64_t row = 0; row < product(block.shape) / block.shape[rank - 1]; ++row) {
    int64_t element = 0;
    for (size_t i = 0; i < rank; ++i) element = element * target_shape[i] + block.offset[i] + at[i];
    std::copy_n(source.begin() + row * run, run, target.begin() + element * element_bytes);
    for (size_t i = rank - 1; i-- > 0;) {
      if (++at[i] < block.shape[i]) break;
      at[i] = 0;
    }
  }
}

}  // namespace

struct Checkpoint::Impl {
  std::filesystem::path directory;
  CheckpointInfo info;
  std::map<std::string, Entry> entries;
  std::vector<Hdf5File> shards;
  std::map<std::string, std::vector<Piece>> pieces;

  void open_index();
  void open_shard(int64_t host, int64_t bytes, int64_t num_hosts);
  void add_piece(const Hdf5File& shard, const std::string& path, const std::string& where);
  void check_whole() const;
  void check_checksum(const Piece& piece, const std::string& path,
                      std::span<const std::byte> bytes) const;
};

void Checkpoint::Impl::open_index() {
  const std::string index_path = (directory / kCheckpointIndexName).string();
  const Hdf5File index = Hdf5File::open(index_path);
  const int64_t version = index.integer_attribute("/", "format_version");
  if (version != kCheckpointVersion)
    fail("{}: a checkpoint of format {}; this build reads format {}", index_path, version,
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

void Checkpoint::Impl::add_piece(const Hdf5File& shard, const std::string& path,
                                 const std::string& where) {
  Piece piece;
  piece.dataset = shard.dataset(path);
  piece.block = {shard.integers_attribute(path, "offset"), piece.dataset.shape()};
  piece.checksum = static_cast<uint32_t>(shard.integer_attribute(path, "crc32c"));
  const auto entry = entries.find(path);
  if (entry == entries.end()) fail("{}: the index does not know this array", where);
  const std::vector<int64_t>& whole = entry->second.shape;
  if (piece.dataset.type() != stored_type(entry->second.dtype) ||
      piece.block.shape.size() != whole.size() || piece.block.offset.size() != whole.size())
    fail("{}: {}{} is no part of the {}{} that the index shows", where,
         stored_type_name(piece.dataset.type()), shape_text(piece.block.shape),
         dtype_name(entry->second.dtype), shape_text(whole));
  for (size_t i = 0; i < whole.size(); ++i)
    if (piece.block.offset[i] < 0 || piece.block.offset[i] + piece.block.shape[i] > whole[i])
      fail("{}: the piece at {} of shape {} lies outside {}", where, shape_text(piece.block.offset),
           shape_text(piece.block.shape), shape_text(whole));
  if (!piece.dataset.fully_stored()) fail("{}: part of it was never written", where);
  pieces[path].push_back(std::move(piece));
}

// Pieces that do not overlap and have as many elements as the whole are the whole.
void Checkpoint::Impl::check_whole() const {
  for (const auto& [path, entry] : entries) {
    const auto found = pieces.find(path);
    int64_t elements = 0;
    if (found != pieces.end()) {
      for (size_t i = 0; i < found->second.size(); ++i) {
        elements += found->second[i].dataset.elements();
        Hdf5Block common;
        for (size_t j = 0; j < i; ++j)
          if (intersect(found->second[i].block, found->second[j].block, &common))
            fail("{}: two pieces of '{}' overlap", directory.string(), path);
      }
    }
    if (elements != product(entry.shape))
      fail("{}: the shards hold {} of the {} elements of '{}'", directory.string(), elements,
           product(entry.shape), path);
  }
}

void Checkpoint::Impl::check_checksum(const Piece& piece, const std::string& path,
                                      std::span<const std::byte> bytes) const {
  if (crc32c(bytes) != piece.checksum)
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

void Checkpoint::read(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
                      std::span<std::byte> bytes) const {
  const auto entry = impl_->entries.find(path);
  if (entry != impl_->entries.end() &&
      (entry->second.dtype != dtype || entry->second.shape != shape))
    fail("{}: '{}' is {}{}; expected {}{}", impl_->directory.string(), path,
         dtype_name(entry->second.dtype), shape_text(entry->second.shape), dtype_name(dtype),
         shape_text(shape));
  read_block(path, std::vector<int64_t>(shape.size(), 0), shape, bytes);
}

void Checkpoint::read_block(const std::string& path, const std::vector<int64_t>& offset,
                            const std::vector<int64_t>& shape, std::span<std::byte> bytes) const {
  const auto entry = impl_->entries.find(path);
  if (entry == impl_->entries.end()) {
    std::vector<std::string> paths;
    for (const auto& [name, unused] : impl_->entries) paths.push_back(name);
    fail("{}: no array '{}'{}", impl_->directory.string(), path, did_you_mean(path, paths));
  }
  const int64_t element_bytes = dtype_bytes(entry->second.dtype);
  CHECK(static_cast<int64_t>(bytes.size()) == product(shape) * element_bytes);
  const std::vector<int64_t>& whole = entry->second.shape;
  CHECK(offset.size() == whole.size() && shape.size() == whole.size(), "'{}': rank", path);
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(offset[i] >= 0 && offset[i] + shape[i] <= whole[i], "'{}': block outside", path);
  const Hdf5Block wanted{offset, shape};
  for (const Piece& piece : impl_->pieces[path]) {
    Hdf5Block common;
    if (!intersect(piece.block, wanted, &common)) continue;
    const bool whole_piece = common.shape == piece.block.shape;
    const Hdf5Block in_piece{minus(common.offset, piece.block.offset), common.shape};
    if (common.shape == shape) {  // All from this piece: straight to where it is wanted.
      piece.dataset.read(in_piece, bytes);
      if (whole_piece) impl_->check_checksum(piece, path, bytes);
      continue;
    }
    std::vector<std::byte> part(static_cast<size_t>(product(common.shape) * element_bytes));
    piece.dataset.read(in_piece, part);
    if (whole_piece) impl_->check_checksum(piece, path, part);
    place_block(part, {minus(common.offset, offset), common.shape}, bytes, shape, element_bytes);
  }
}

void Checkpoint::verify() const {
  for (const auto& [path, entry] : impl_->entries) {
    std::vector<std::byte> bytes(
        static_cast<size_t>(product(entry.shape) * dtype_bytes(entry.dtype)));
    read(path, entry.dtype, entry.shape, bytes);
  }
}

}  // namespace tessera
