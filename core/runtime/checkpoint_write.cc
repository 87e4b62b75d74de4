// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint: shards, then the index over them.
#include <map>

#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/hdf5.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/checkpoint_files.h"
#include "core/runtime/checkpoint_tiles.h"

namespace tessera {

std::string checkpoint_piece_name(const std::string& array, const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& offset,
                                  const std::vector<int64_t>& piece) {
  return piece == shape ? array : fmt::format("{}@{}", array, fmt::join(offset, "_"));
}

std::string checkpoint_array_name(const std::string& piece_name) {
  return piece_name.substr(0, piece_name.rfind('@'));
}

namespace {

// An array as the shards hold it.
struct Assembled {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  std::vector<Hdf5Source> sources;
  std::vector<std::byte> only;  // The value, of an array of one element or none.
};

void collect(const Hdf5File& shard, const std::string& shard_name,
             std::map<std::string, Assembled>* arrays) {
  for (const std::string& path : shard.dataset_paths()) {
    const Hdf5Dataset dataset = shard.dataset(path);
    Assembled& array = (*arrays)[checkpoint_array_name(path)];
    array.type = dataset.type();
    array.shape = shard.integers_attribute(path, "shape");
    const Hdf5Block block{shard.integers_attribute(path, "offset"), dataset.shape()};
    array.sources.push_back({block, shard_name, path});
    if (dataset.elements() <= 1) {
      array.only.resize(
          static_cast<size_t>(dataset.elements() * stored_type_bytes(dataset.type())));
      dataset.read(array.only);
    }
  }
}

void write_piece(Hdf5File& shard, const CheckpointArray& array, const std::vector<int64_t>& piece,
                 const std::vector<int64_t>& offset) {
  const std::string name = checkpoint_piece_name(array.path, array.shape, offset, piece);
  const std::vector<int64_t> chunk = hdf5_chunk(piece, dtype_bytes(array.dtype));
  const Tiles tiles(piece, chunk);
  std::vector<int64_t> checksums;
  auto rest = array.bytes;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const auto bytes =
        static_cast<size_t>(block_elements(tiles.at(i).shape) * dtype_bytes(array.dtype));
    checksums.push_back(static_cast<int64_t>(crc32c(rest.first(bytes))));
    rest = rest.subspan(bytes);
  }
  CHECK(rest.empty(), "'{}': its tiles are not all of it", array.path);
  shard.create_dataset(name, stored_type(array.dtype), piece).write(array.bytes);
  shard.set_attribute(name, "shape", array.shape);
  shard.set_attribute(name, "offset", offset);
  shard.set_attribute(name, "chunk", chunk);
  shard.set_attribute(name, "crc32c", checksums);
}

void write_info(Hdf5File& index, const CheckpointInfo& info) {
  index.set_attribute("/", "format_version", kCheckpointVersion);
  index.set_attribute("/", "step", info.step);
  index.set_attribute("/", "seed", static_cast<int64_t>(info.seed));
  index.set_attribute("/", "input_position", info.input_position);
  index.set_attribute("/", "graph_hash", info.graph_hash);
  index.write_text(kCheckpointHparams, info.hparams);
  index.create_group("input_extra");
  for (const auto& [name, value] : info.input_extra)
    index.set_attribute("input_extra", name, value);
}

}  // namespace

int64_t write_checkpoint_shard(const std::filesystem::path& directory, const CheckpointInfo& info,
                               const std::vector<CheckpointArray>& arrays,
                               const CheckpointHost& host) {
  const std::filesystem::path path = directory / checkpoint_shard_name(host.index);
  Hdf5File shard = Hdf5File::create(path);
  shard.set_attribute("/", "format_version", kCheckpointVersion);
  shard.set_attribute("/", "step", info.step);
  shard.set_attribute("/", "host", host.index);
  shard.set_attribute("/", "num_hosts", host.count);
  for (const CheckpointArray& array : arrays) {
    const bool whole = array.piece.empty() && array.offset.empty();
    const std::vector<int64_t>& piece = whole ? array.shape : array.piece;
    CHECK(static_cast<int64_t>(array.bytes.size()) ==
              block_elements(piece) * dtype_bytes(array.dtype),
          "'{}': {} bytes", array.path, array.bytes.size());
    write_piece(shard, array, piece,
                whole ? std::vector<int64_t>(array.shape.size(), 0) : array.offset);
  }
  shard.close();
  sync_file(path);
  sync_directory(directory);
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

void write_checkpoint_index(const std::filesystem::path& directory, const CheckpointInfo& info,
                            int64_t num_hosts) {
  std::map<std::string, Assembled> arrays;
  std::vector<int64_t> shard_bytes;
  for (int64_t host = 0; host < num_hosts; ++host) {
    const std::string name = checkpoint_shard_name(host);
    collect(Hdf5File::open(directory / name), name, &arrays);
    shard_bytes.push_back(static_cast<int64_t>(std::filesystem::file_size(directory / name)));
  }
  const std::filesystem::path path = directory / kCheckpointIndexName;
  Hdf5File index = Hdf5File::create(path);
  write_info(index, info);
  index.set_attribute("/", "shard_bytes", shard_bytes);
  std::string list;
  for (const auto& [name, array] : arrays) {
    list += fmt::format("{} [{}] {}\n", stored_type_name(array.type), fmt::join(array.shape, " "),
                        name);
    // HDF5 has no virtual scalars, so the index holds single values itself.
    if (block_elements(array.shape) <= 1) {
      index.create_dataset(name, array.type, array.shape).write(array.only);
    } else {
      index.create_virtual(name, array.type, array.shape, array.sources);
    }
  }
  index.write_text(kCheckpointArrays, list);
  index.close();
  sync_file(path);
  sync_directory(directory);
}

}  // namespace tessera
