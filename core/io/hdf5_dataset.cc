// SPDX-License-Identifier: Apache-2.0
// Datasets of hdf5.h, and element types.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "core/io/hdf5_internal.h"

namespace tessera {

using namespace hdf5_internal;

std::string_view stored_type_name(StoredType type) {
  static constexpr std::string_view kNames[] = {"u8",  "u32", "u64", "i32",
                                                "i64", "f32", "f64", "bf16"};
  return kNames[static_cast<int>(type)];
}

int64_t stored_type_bytes(StoredType type) {
  static constexpr int64_t kBytes[] = {1, 4, 8, 4, 8, 4, 8, 2};
  return kBytes[static_cast<int>(type)];
}

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

int64_t Hdf5Dataset::elements() const { return product(shape_); }

namespace {

// Selects `region` in the dataset's space; the whole space if the dataset is a scalar.
Hdf5Handle select(hid_t dataset, const Region& region, const std::string& where) {
  Hdf5Handle space = owned(H5Dget_space(dataset), "read the shape", where);
  if (!region.shape.empty())
    checked(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, sizes(region.origin).data(), nullptr,
                                sizes(region.shape).data(), nullptr),
            "select a region", where);
  return space;
}

}  // namespace

void Hdf5Dataset::read(const Region& region, std::span<std::byte> bytes) const {
  silence();
  CHECK(static_cast<int64_t>(bytes.size()) == product(region.shape) * stored_type_bytes(type_));
  if (bytes.empty()) return;
  const Hdf5Handle file_space = select(handle_.id(), region, where_);
  const Hdf5Handle memory_space = dataspace(region.shape);
  checked(H5Dread(handle_.id(), type_id(type_), memory_space.id(), file_space.id(), H5P_DEFAULT,
                  bytes.data()),
          "read", where_);
}

void Hdf5Dataset::read(std::span<std::byte> bytes) const { read(Region::whole(shape_), bytes); }

void Hdf5Dataset::write(const Region& region, std::span<const std::byte> bytes) {
  silence();
  CHECK(static_cast<int64_t>(bytes.size()) == product(region.shape) * stored_type_bytes(type_));
  if (bytes.empty()) return;
  const Hdf5Handle file_space = select(handle_.id(), region, where_);
  const Hdf5Handle memory_space = dataspace(region.shape);
  checked(H5Dwrite(handle_.id(), type_id(type_), memory_space.id(), file_space.id(), H5P_DEFAULT,
                   bytes.data()),
          "write", where_);
}

void Hdf5Dataset::write(std::span<const std::byte> bytes) { write(Region::whole(shape_), bytes); }

void Hdf5Dataset::append(std::span<const std::byte> bytes) {
  silence();
  CHECK(shape_.size() == 1);
  const int64_t begin = shape_[0];
  const int64_t count = static_cast<int64_t>(bytes.size()) / stored_type_bytes(type_);
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
  if (offset == HADDR_UNDEF) fail("{}: has no place in the file: {}", where_, reason());
  return static_cast<int64_t>(offset);
}

}  // namespace tessera
