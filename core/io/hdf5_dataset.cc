// SPDX-License-Identifier: Apache-2.0
// Implements datasets of hdf5.h, element types, and the helpers of hdf5_internal.h.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "core/io/hdf5_internal.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 8> kStoredNames = {"u8",  "u32", "u64", "i32",
                                                          "i64", "f32", "f64", "bf16"};
constexpr std::array<int64_t, 8> kStoredBytes = {1, 4, 8, 4, 8, 4, 8, 2};

// bf16 has f32's exponent and the upper 7 bits of its mantissa.
hid_t bf16_type() {
  const hid_t id = H5Tcopy(H5T_IEEE_F32LE);
  CHECK(H5Tset_fields(id, 15, 7, 8, 0, 7) >= 0);
  CHECK(H5Tset_size(id, 2) >= 0);
  CHECK(H5Tset_ebias(id, 127) >= 0);
  return id;
}

}  // namespace

namespace hdf5_internal {

void silence() {
  // Owners close everything. The clean-up of HDF5 at exit would crash on files that could not be
  // closed because the disk is full.
  static const herr_t once = H5dont_atexit();
  (void)once;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string reason() {
  std::string text;
  const auto take = [](unsigned, const H5E_error2_t* frame, void* out) -> herr_t {
    if (frame->desc != nullptr && *frame->desc != '\0')
      *static_cast<std::string*>(out) = frame->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take, &text);
  // HDF5 looks for a filter that it lacks, such as h5py's lzf, in its folder of plugins.
  if (text.find("plugin") != std::string::npos || text.find("required filter") != std::string::npos)
    return fmt::format(
        "it is compressed by a filter that this HDF5 does not have; write the file again with gzip "
        "(h5py: compression='gzip') or uncompressed (HDF5: {})",
        text);
  // "file write failed: time = …, errno = 28, error message = 'No space left on device', buf = …"
  const std::string_view marker = "error message = '";
  if (const size_t at = text.find(marker); at != std::string::npos) {
    const size_t begin = at + marker.size();
    return text.substr(begin, text.find('\'', begin) - begin);
  }
  for (const char* sign : {"checksum", "truncated file", "bad byte number"})
    if (text.find(sign) != std::string::npos)
      return fmt::format(
          "the file is damaged; restore it from a copy or create it again (HDF5: {})", text);
  return text.empty() ? "no reason given by HDF5" : text;
}

hid_t checked(hid_t id, std::string_view what, std::string_view where) {
  if (id < 0) fail("{}: cannot {}: {}", where, what, reason());
  return id;
}

Hdf5Handle owned(hid_t id, std::string_view what, std::string_view where) {
  return Hdf5Handle(checked(id, what, where));
}

Hdf5Handle creation_list(hid_t list_class) {
  Hdf5Handle list(H5Pcreate(list_class));
  H5Pset_obj_track_times(list.id(), false);
  return list;
}

// Returns the type in memory and on disk; all supported machines are little-endian.
hid_t type_id(StoredType type) {
  static const std::array<hid_t, 8> ids = {H5T_STD_U8LE,   H5T_STD_U32LE, H5T_STD_U64LE,
                                           H5T_STD_I32LE,  H5T_STD_I64LE, H5T_IEEE_F32LE,
                                           H5T_IEEE_F64LE, bf16_type()};
  return ids[static_cast<size_t>(type)];
}

StoredType read_type(hid_t id, std::string_view where) {
  for (size_t i = 0; i < kStoredNames.size(); ++i)
    if (const auto type = static_cast<StoredType>(i); H5Tequal(id, type_id(type)) > 0) return type;
  fail(
      "{}: unsupported element type (class {}, {} bytes); expected u8, u32, u64, i32, i64, "
      "f32, f64 or bf16, little-endian",
      where, static_cast<int>(H5Tget_class(id)), H5Tget_size(id));
}

Hdf5Handle text_type(size_t bytes) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.id(), bytes);
  H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  return type;
}

std::vector<hsize_t> sizes(const std::vector<int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

Hdf5Handle dataspace(const std::vector<int64_t>& shape) {
  if (shape.empty()) return Hdf5Handle(H5Screate(H5S_SCALAR));
  return Hdf5Handle(H5Screate_simple(static_cast<int>(shape.size()), sizes(shape).data(), nullptr));
}

void select(hid_t space, const Region& region, std::string_view where) {
  if (region.shape.empty()) return;
  checked(H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(region.origin).data(), nullptr,
                              sizes(region.shape).data(), nullptr),
          "select a region", where);
}

std::vector<int64_t> extent(hid_t space) {
  std::vector<hsize_t> dims(std::max(0, H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

}  // namespace hdf5_internal

using namespace hdf5_internal;

std::string_view stored_type_name(StoredType type) {
  return kStoredNames[static_cast<size_t>(type)];
}
int64_t stored_type_bytes(StoredType type) { return kStoredBytes[static_cast<size_t>(type)]; }

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return StoredType::kF64;
    case DType::kF32:
      return StoredType::kF32;
    case DType::kBF16:
      return StoredType::kBF16;
    case DType::kI32:
      return StoredType::kI32;
    case DType::kU32:
      return StoredType::kU32;
    case DType::kBool:
      return StoredType::kU8;
  }
  CHECK(false, "dtype {}", static_cast<int>(dtype));
  return StoredType::kU8;
}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  std::swap(id_, other.id_);
  return *this;
}

Hdf5Handle::~Hdf5Handle() {
  if (id_ < 0) return;
  silence();
  H5Idec_ref(id_);
}

// Calls transfer(memory space, file space) for the selected region, unless it is empty.
template <typename Transfer>
void Hdf5Dataset::transfer(const Region& region, size_t bytes, const Transfer& transfer) const {
  silence();
  CHECK(static_cast<int64_t>(bytes) == region.elements() * stored_type_bytes(type_));
  if (bytes == 0) return;
  const Hdf5Handle file_space = owned(H5Dget_space(handle_.id()), "read the shape", where_);
  select(file_space.id(), region, where_);
  transfer(dataspace(region.shape).id(), file_space.id());
}

void Hdf5Dataset::read(const Region& region, std::span<std::byte> bytes) const {
  transfer(region, bytes.size(), [&](hid_t memory, hid_t file) {
    checked(H5Dread(handle_.id(), type_id(type_), memory, file, H5P_DEFAULT, bytes.data()), "read",
            where_);
  });
}

void Hdf5Dataset::write(const Region& region, std::span<const std::byte> bytes) {
  transfer(region, bytes.size(), [&](hid_t memory, hid_t file) {
    checked(H5Dwrite(handle_.id(), type_id(type_), memory, file, H5P_DEFAULT, bytes.data()),
            "write", where_);
  });
}

void Hdf5Dataset::append(std::span<const std::byte> bytes) {
  silence();
  CHECK(shape_.size() == 1);
  const int64_t begin = shape_[0];
  const int64_t count = std::ssize(bytes) / stored_type_bytes(type_);
  shape_[0] += count;
  checked(H5Dset_extent(handle_.id(), sizes(shape_).data()), "grow", where_);
  write({{begin}, {count}}, bytes);
}

bool Hdf5Dataset::fully_stored() const {
  silence();
  if (elements() == 0) return true;
  const Hdf5Handle list(H5Dget_create_plist(handle_.id()));
  if (H5Pget_layout(list.id()) != H5D_CHUNKED) return H5Dget_storage_size(handle_.id()) > 0;
  std::vector<hsize_t> chunk(shape_.size());
  H5Pget_chunk(list.id(), static_cast<int>(chunk.size()), chunk.data());
  hsize_t expected = 1;
  for (size_t i = 0; i < chunk.size(); ++i)
    expected *= (static_cast<hsize_t>(shape_[i]) + chunk[i] - 1) / chunk[i];
  hsize_t stored = 0;
  const Hdf5Handle space(H5Dget_space(handle_.id()));
  checked(H5Dget_num_chunks(handle_.id(), space.id(), &stored), "count the chunks", where_);
  return stored == expected;
}

bool Hdf5Dataset::is_virtual() const {
  const Hdf5Handle list(H5Dget_create_plist(handle_.id()));
  return H5Pget_layout(list.id()) == H5D_VIRTUAL;
}

int64_t Hdf5Dataset::file_offset() const {
  silence();
  if (elements() == 0) return 0;
  const haddr_t offset = H5Dget_offset(handle_.id());
  if (offset == HADDR_UNDEF)
    fail("{}: no space in the file is allocated for it: {}", where_, reason());
  return static_cast<int64_t>(offset);
}

}  // namespace tessera
