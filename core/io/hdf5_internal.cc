// SPDX-License-Identifier: Apache-2.0
#include "core/io/hdf5_internal.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera::hdf5_internal {

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
  // "file write failed: time = …, errno = 28, error message = 'No space left on device', buf = …"
  const std::string_view marker = "error message = '";
  if (const size_t at = text.find(marker); at != std::string::npos) {
    const size_t begin = at + marker.size();
    return text.substr(begin, text.find('\'', begin) - begin);
  }
  for (const char* sign : {"checksum", "truncated file", "bad byte number"})
    if (text.find(sign) != std::string::npos)
      return fmt::format("the file is damaged; copy it or make it again (HDF5: {})", text);
  return text.empty() ? "no reason given by HDF5" : text;
}

hid_t checked(hid_t id, std::string_view what, std::string_view where) {
  if (id < 0) fail("{}: cannot {}: {}", where, what, reason());
  return id;
}

Hdf5Handle owned(hid_t id, std::string_view what, std::string_view where) {
  return Hdf5Handle(checked(id, what, where));
}

namespace {

// bf16 has f32's exponent and the upper 7 bits of its mantissa.
hid_t bf16_type() {
  static const hid_t type = [] {
    const hid_t id = H5Tcopy(H5T_IEEE_F32LE);
    CHECK(H5Tset_fields(id, 15, 7, 8, 0, 7) >= 0);
    CHECK(H5Tset_size(id, 2) >= 0);
    CHECK(H5Tset_ebias(id, 127) >= 0);
    return id;
  }();
  return type;
}

}  // namespace

// The type in memory and on disk; all supported machines are little-endian.
hid_t type_id(StoredType type) {
  switch (type) {
    case StoredType::kU8:
      return H5T_STD_U8LE;
    case StoredType::kU32:
      return H5T_STD_U32LE;
    case StoredType::kU64:
      return H5T_STD_U64LE;
    case StoredType::kI32:
      return H5T_STD_I32LE;
    case StoredType::kI64:
      return H5T_STD_I64LE;
    case StoredType::kF32:
      return H5T_IEEE_F32LE;
    case StoredType::kF64:
      return H5T_IEEE_F64LE;
    case StoredType::kBF16:
      return bf16_type();
  }
  CHECK(false, "stored type {}", static_cast<int>(type));
  return -1;
}

StoredType read_type(hid_t id, std::string_view where) {
  for (StoredType type : {StoredType::kU8, StoredType::kU32, StoredType::kU64, StoredType::kI32,
                          StoredType::kI64, StoredType::kF32, StoredType::kF64, StoredType::kBF16})
    if (H5Tequal(id, type_id(type)) > 0) return type;
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

int64_t product(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  return elements;
}

std::vector<hsize_t> sizes(const std::vector<int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

Hdf5Handle dataspace(const std::vector<int64_t>& shape) {
  if (shape.empty()) return Hdf5Handle(H5Screate(H5S_SCALAR));
  return Hdf5Handle(H5Screate_simple(static_cast<int>(shape.size()), sizes(shape).data(), nullptr));
}

std::vector<int64_t> extent(hid_t space) {
  std::vector<hsize_t> dims(std::max(0, H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

}  // namespace tessera::hdf5_internal
