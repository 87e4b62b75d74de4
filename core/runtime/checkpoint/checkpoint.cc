// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint.h"

#include <optional>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_files.h"
#include "core/runtime/checkpoint/checkpoint_pieces.h"

namespace tessera {
namespace {

// A region of a piece as a region of the array.
Region moved(Region region, const std::vector<int64_t>& by) {
  for (size_t i = 0; i < by.size(); ++i) region.origin[i] += by[i];
  return region;
}

// Pieces that do not overlap and have as many elements as the whole are the whole.
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

// What can go wrong in `work` is damage.
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

OpenedCheckpoint opened_checkpoint(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path table = directory / kCheckpointIndexTableName;
  const auto status = std::filesystem::symlink_status(table, error);
  if (status.type() == std::filesystem::file_type::none &&
      error != std::errc::too_many_symbolic_link_levels)
    throw NoAccess(fmt::format("{}: {}", table.string(), error.message()));
  OpenedCheckpoint opened = std::filesystem::exists(status) ? open_tabled_checkpoint(directory)
                                                            : open_hdf5_checkpoint(directory);
  check_whole(opened, directory);
  return opened;
}

}  // namespace

UnknownFormat::UnknownFormat(const std::string& where, int64_t version)
    : Error(fmt::format("{}: a checkpoint of format {}; this build reads formats 1 to {}", where,
                        version, kCheckpointVersion)) {}

struct Checkpoint::Impl {
  std::filesystem::path directory;
  std::string remedy;
  OpenedCheckpoint opened;

  const Entry& entry(const std::string& path) const;
  void read_tile(const OpenedPiece& piece, int64_t number, const std::string& path,
                 std::span<std::byte> bytes) const;
  void read_piece(const OpenedPiece& piece, const Region& wanted, const std::string& path,
                  std::span<std::byte> bytes, int64_t element_bytes) const;
};

const Checkpoint::Entry& Checkpoint::Impl::entry(const std::string& path) const {
  const auto found = opened.entries.find(path);
  if (found != opened.entries.end()) return found->second;
  std::vector<std::string> paths;
  for (const auto& [name, unused] : opened.entries) paths.push_back(name);
  fail("{}: no array '{}'{}", directory.string(), path, did_you_mean(path, paths));
}

void Checkpoint::Impl::read_tile(const OpenedPiece& piece, int64_t number, const std::string& path,
                                 std::span<std::byte> bytes) const {
  checked_for_damage(remedy, [&] {
    piece.bytes->read(number, piece.tiles, bytes);
    if (crc32c(bytes) != piece.checksums[static_cast<size_t>(number)])
      fail("{}: '{}' is damaged: its checksum does not match", directory.string(), path);
  });
}

void Checkpoint::Impl::read_piece(const OpenedPiece& piece, const Region& wanted,
                                  const std::string& path, std::span<std::byte> bytes,
                                  int64_t element_bytes) const {
  std::vector<std::byte> buffer;
  for (int64_t i = 0; i < piece.tiles.count(); ++i) {
    const Region tile = moved(piece.tiles.at(i), piece.block.origin);
    const std::optional<Region> common = intersect(tile, wanted);
    if (!common) continue;
    const Subarray to(wanted, *common, element_bytes);
    if (*common == tile && to.is_contiguous()) {  // Read into place.
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
    : impl_(std::make_unique<Impl>()) {
  impl_->directory = directory;
  impl_->remedy = std::move(remedy);
  impl_->opened = checked_for_damage(impl_->remedy, [&] { return opened_checkpoint(directory); });
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

const std::filesystem::path& Checkpoint::directory() const { return impl_->directory; }
const CheckpointInfo& Checkpoint::info() const { return impl_->opened.info; }
const std::map<std::string, Checkpoint::Entry>& Checkpoint::entries() const {
  return impl_->opened.entries;
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
  const Region wanted{offset, shape};
  const int64_t element_bytes = dtype_bytes(entry.dtype);
  CHECK(static_cast<int64_t>(bytes.size()) == wanted.elements() * element_bytes);
  const std::vector<int64_t>& whole = entry.shape;
  CHECK(offset.size() == whole.size() && shape.size() == whole.size(), "'{}': rank", path);
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(offset[i] >= 0 && offset[i] + shape[i] <= whole[i], "'{}': block outside", path);
  const auto pieces = impl_->opened.pieces.find(path);
  if (pieces == impl_->opened.pieces.end()) return;  // No elements: check_whole has counted.
  for (const OpenedPiece& piece : pieces->second)
    if (intersect(piece.block, wanted))
      impl_->read_piece(piece, wanted, path, bytes, element_bytes);
}

void Checkpoint::verify() const {
  std::vector<std::byte> bytes;
  for (const auto& [path, pieces] : impl_->opened.pieces) {
    const int64_t element_bytes = dtype_bytes(impl_->opened.entries.at(path).dtype);
    for (const OpenedPiece& piece : pieces) {
      for (int64_t i = 0; i < piece.tiles.count(); ++i) {
        bytes.resize(static_cast<size_t>(piece.tiles.at(i).elements() * element_bytes));
        impl_->read_tile(piece, i, path, bytes);
      }
    }
  }
}

}  // namespace tessera
