// SPDX-License-Identifier: Apache-2.0
#include "core/base/hdf5.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <fmt/ranges.h>
#include <hdf5.h>

#include "core/base/error.h"

#ifndef H5_HAVE_THREADSAFE
#error "Checkpoints are written and input is read on threads of their own: HDF5 must be thread-safe"
#endif

namespace tessera {
namespace {

static_assert(sizeof(hid_t) == sizeof(int64_t));
constexpr int64_t kMaxChunkBytes = int64_t{16} << 20;
// Chunks read at random (shuffled tokens) are found again in this cache, per dataset.
constexpr size_t kChunkCacheBytes = size_t{32} << 20;

// HDF5 prints its error stack unless told not to; it is thread-local.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

// The innermost reason on this thread's error stack.
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
  return text.empty() ? "no reason given by HDF5" : text;
}

hid_t checked(hid_t id, std::string_view what, std::string_view where) {
  if (id < 0) fail("{}: cannot {}: {}", where, what, reason());
  return id;
}

Hdf5Handle owned(hid_t id, std::string_view what, std::string_view where) {
  return Hdf5Handle(checked(id, what, where));
}

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

// In memory and, all our machines being little-endian, on disk.
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
      "{}: an element type we do not store (class {}, {} bytes); expected u8, u32, u64, i32, i64, "
      "f32, f64 or bf16, little-endian",
      where, static_cast<int>(H5Tget_class(id)), H5Tget_size(id));
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

// Whole trailing axes first, then as much of the next as fits in 16 MiB: rows stay together. That
// axis is cut evenly, because the file holds a last chunk at full size.
std::vector<int64_t> choose_chunk(const std::vector<int64_t>& shape, int64_t element_bytes) {
  std::vector<int64_t> chunk(shape.size(), 1);
  int64_t room = kMaxChunkBytes / element_bytes;
  for (size_t i = shape.size(); i-- > 0 && room > 1;) {
    const int64_t pieces = (shape[i] + room - 1) / room;
    chunk[i] = (shape[i] + pieces - 1) / pieces;
    room = pieces == 1 ? room / chunk[i] : 1;
  }
  return chunk;
}

Hdf5Handle creation_list(const Hdf5Layout& layout, const std::vector<int64_t>& shape,
                         int64_t element_bytes) {
  Hdf5Handle list(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(list.id(), false);  // Equal content gives equal files.
  if (!layout.growable && product(shape) <= 1) {
    H5Pset_layout(list.id(), H5D_COMPACT);
    return list;
  }
  const auto chunk = layout.chunk.empty() ? choose_chunk(shape, element_bytes) : layout.chunk;
  H5Pset_chunk(list.id(), static_cast<int>(chunk.size()), sizes(chunk).data());
  if (layout.compression > 0) {
    H5Pset_shuffle(list.id());
    H5Pset_deflate(list.id(), static_cast<unsigned>(layout.compression));
  }
  H5Pset_fletcher32(list.id());
  return list;
}

}  // namespace

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

// Selects `block` in the dataset's space; the whole space if the block is empty (scalars).
Hdf5Handle select(hid_t dataset, const Hdf5Block& block, const std::string& where) {
  Hdf5Handle space = owned(H5Dget_space(dataset), "read the shape", where);
  if (!block.shape.empty())
    checked(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, sizes(block.offset).data(), nullptr,
                                sizes(block.shape).data(), nullptr),
            "select a block", where);
  return space;
}

}  // namespace

void Hdf5Dataset::read(const Hdf5Block& block, std::span<std::byte> bytes) const {
  silence();
  CHECK(static_cast<int64_t>(bytes.size()) == product(block.shape) * stored_type_bytes(type_));
  if (bytes.empty()) return;
  const Hdf5Handle file_space = select(handle_.id(), block, where_);
  const Hdf5Handle memory_space = dataspace(block.shape);
  checked(H5Dread(handle_.id(), type_id(type_), memory_space.id(), file_space.id(), H5P_DEFAULT,
                  bytes.data()),
          "read", where_);
}

void Hdf5Dataset::read(std::span<std::byte> bytes) const {
  read({std::vector<int64_t>(shape_.size(), 0), shape_}, bytes);
}

void Hdf5Dataset::write(const Hdf5Block& block, std::span<const std::byte> bytes) {
  silence();
  CHECK(static_cast<int64_t>(bytes.size()) == product(block.shape) * stored_type_bytes(type_));
  if (bytes.empty()) return;
  const Hdf5Handle file_space = select(handle_.id(), block, where_);
  const Hdf5Handle memory_space = dataspace(block.shape);
  checked(H5Dwrite(handle_.id(), type_id(type_), memory_space.id(), file_space.id(), H5P_DEFAULT,
                   bytes.data()),
          "write", where_);
}

void Hdf5Dataset::write(std::span<const std::byte> bytes) {
  write({std::vector<int64_t>(shape_.size(), 0), shape_}, bytes);
}

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

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  silence();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail("{}: no such file", path.string());
  if (std::filesystem::is_directory(status)) fail("{}: is a directory", path.string());
  Hdf5File file;
  file.path_ = path;
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0) {
    const std::string why = reason();
    if (why.find("signature") != std::string::npos) fail("{}: not an HDF5 file", path.string());
    fail("{}: cannot open: {}", path.string(), why);
  }
  file.handle_ = Hdf5Handle(id);
  return file;
}

Hdf5File Hdf5File::create(const std::filesystem::path& path) {
  silence();
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  Hdf5File file;
  file.path_ = path;
  file.handle_ = owned(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), "create",
                       path.string());
  return file;
}

void Hdf5File::close() {
  silence();
  if (H5Fflush(handle_.id(), H5F_SCOPE_LOCAL) < 0)
    fail("{}: cannot write: {}", path_.string(), reason());
  if (H5Fclose(handle_.release()) < 0) fail("{}: cannot close: {}", path_.string(), reason());
}

void Hdf5File::create_group(const std::string& path) {
  silence();
  owned(H5Gcreate2(handle_.id(), path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        "create the group", fmt::format("{}:{}", path_.string(), path));
}

bool Hdf5File::has(const std::string& path) const {
  silence();
  // H5Lexists wants every link on the way to exist.
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (part != "/" && H5Lexists(handle_.id(), part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (at == std::string::npos) return true;
  }
}

std::vector<std::string> Hdf5File::dataset_paths() const {
  silence();
  std::vector<std::string> paths;
  const auto visit = [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  checked(H5Ovisit2(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, visit, &paths, H5O_INFO_BASIC),
          "list the datasets", path_.string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  silence();
  Hdf5Dataset dataset;
  dataset.where_ = fmt::format("{}:{}", path_.string(), path);
  if (!has(path)) fail("{}: no such dataset", dataset.where_);
  const Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.id(), 1021, kChunkCacheBytes, H5D_CHUNK_CACHE_W0_DEFAULT);
  dataset.handle_ =
      owned(H5Dopen2(handle_.id(), path.c_str(), access.id()), "open the dataset", dataset.where_);
  const Hdf5Handle type(H5Dget_type(dataset.handle_.id()));
  dataset.type_ = read_type(type.id(), dataset.where_);
  const Hdf5Handle space(H5Dget_space(dataset.handle_.id()));
  dataset.shape_ = extent(space.id());
  return dataset;
}

namespace {

Hdf5Handle create_object(hid_t file, const std::string& path, hid_t type, hid_t space,
                         hid_t creation, const std::string& where) {
  const Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.id(), 1);
  return owned(H5Dcreate2(file, path.c_str(), type, space, links.id(), creation, H5P_DEFAULT),
               "create the dataset", where);
}

}  // namespace

Hdf5Dataset Hdf5File::create_dataset(const std::string& path, StoredType type,
                                     const std::vector<int64_t>& shape, const Hdf5Layout& layout) {
  silence();
  Hdf5Dataset dataset;
  dataset.where_ = fmt::format("{}:{}", path_.string(), path);
  dataset.type_ = type;
  dataset.shape_ = shape;
  CHECK(!layout.growable || (shape.size() == 1 && !layout.chunk.empty()));
  const Hdf5Handle creation = creation_list(layout, shape, stored_type_bytes(type));
  const hsize_t unlimited = H5S_UNLIMITED;
  const Hdf5Handle space = layout.growable
                               ? Hdf5Handle(H5Screate_simple(1, sizes(shape).data(), &unlimited))
                               : dataspace(shape);
  dataset.handle_ =
      create_object(handle_.id(), path, type_id(type), space.id(), creation.id(), dataset.where_);
  return dataset;
}

void Hdf5File::create_virtual(const std::string& path, StoredType type,
                              const std::vector<int64_t>& shape,
                              const std::vector<Hdf5Source>& sources) {
  silence();
  const std::string where = fmt::format("{}:{}", path_.string(), path);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.id(), false);
  for (const Hdf5Source& source : sources) {
    const Hdf5Handle target = dataspace(shape);
    H5Sselect_hyperslab(target.id(), H5S_SELECT_SET, sizes(source.block.offset).data(), nullptr,
                        sizes(source.block.shape).data(), nullptr);
    const Hdf5Handle origin = dataspace(source.block.shape);
    checked(H5Pset_virtual(creation.id(), target.id(), source.file.c_str(), source.dataset.c_str(),
                           origin.id()),
            "map a virtual dataset", where);
  }
  const Hdf5Handle space = dataspace(shape);
  create_object(handle_.id(), path, type_id(type), space.id(), creation.id(), where);
}

void Hdf5File::write_text(const std::string& path, std::string_view text) {
  silence();
  const std::string where = fmt::format("{}:{}", path_.string(), path);
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  const Hdf5Handle type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.id(), padded.size());
  H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  const Hdf5Handle space = dataspace({1});
  Hdf5Layout layout;
  layout.chunk = {1};
  const Hdf5Handle creation = creation_list(layout, {2}, 1);  // Chunked, for the checksum.
  const Hdf5Handle dataset =
      create_object(handle_.id(), path, type.id(), space.id(), creation.id(), where);
  checked(H5Dwrite(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()), "write",
          where);
}

std::string Hdf5File::read_text(const std::string& path) const {
  silence();
  const std::string where = fmt::format("{}:{}", path_.string(), path);
  if (!has(path)) fail("{}: no such text", where);
  const Hdf5Handle dataset =
      owned(H5Dopen2(handle_.id(), path.c_str(), H5P_DEFAULT), "open the text", where);
  const Hdf5Handle type(H5Dget_type(dataset.id()));
  const Hdf5Handle space(H5Dget_space(dataset.id()));
  if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) > 0 ||
      extent(space.id()) != std::vector<int64_t>{1})
    fail("{}: expected one string of fixed length", where);
  std::string text(H5Tget_size(type.id()), '\0');
  checked(H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), "read",
          where);
  return text == std::string(1, '\0') ? "" : text;
}

namespace {

struct Attribute {
  Hdf5Handle object;
  Hdf5Handle attribute;
  std::string where;
};

void write_attribute(hid_t file, const std::string& file_name, const std::string& object,
                     const std::string& name, hid_t type, hid_t space, const void* value) {
  silence();
  const std::string where = fmt::format("{}:{}@{}", file_name, object, name);
  const Hdf5Handle owner = owned(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open", where);
  const Hdf5Handle attribute =
      owned(H5Acreate2(owner.id(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
            "create the attribute", where);
  checked(H5Awrite(attribute.id(), type, value), "write the attribute", where);
}

Attribute open_attribute(hid_t file, const std::string& file_name, const std::string& object,
                         const std::string& name) {
  silence();
  Attribute result;
  result.where = fmt::format("{}:{}", file_name, object);
  result.object = owned(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open", result.where);
  if (H5Aexists(result.object.id(), name.c_str()) <= 0)
    fail("{}: the attribute '{}' is missing", result.where, name);
  result.where += "@" + name;
  result.attribute =
      owned(H5Aopen(result.object.id(), name.c_str(), H5P_DEFAULT), "open", result.where);
  return result;
}

// Converts from whatever number the file holds, scalar or array.
template <typename T>
std::vector<T> read_numbers(const Attribute& attribute, hid_t memory_type) {
  const Hdf5Handle type(H5Aget_type(attribute.attribute.id()));
  const H5T_class_t kind = H5Tget_class(type.id());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT)
    fail("{}: expected a number, got HDF5 type class {}", attribute.where, static_cast<int>(kind));
  const Hdf5Handle space(H5Aget_space(attribute.attribute.id()));
  std::vector<T> values(std::max<hssize_t>(0, H5Sget_simple_extent_npoints(space.id())));
  if (!values.empty())
    checked(H5Aread(attribute.attribute.id(), memory_type, values.data()), "read", attribute.where);
  return values;
}

template <typename T>
T read_number(const Attribute& attribute, hid_t memory_type) {
  const auto values = read_numbers<T>(attribute, memory_type);
  if (values.size() != 1) fail("{}: expected one number, got {}", attribute.where, values.size());
  return values[0];
}

}  // namespace

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  silence();
  return H5Aexists_by_name(handle_.id(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& object) const {
  silence();
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  checked(H5Aiterate_by_name(handle_.id(), object.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
                             visit, &names, H5P_DEFAULT),
          "list the attributes", path_.string());
  return names;
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             std::string_view text) {
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  const Hdf5Handle type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.id(), padded.size());
  H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  write_attribute(handle_.id(), path_.string(), object, name, type.id(), dataspace({}).id(),
                  padded.data());
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, int64_t value) {
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, dataspace({}).id(),
                  &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, double value) {
  write_attribute(handle_.id(), path_.string(), object, name, H5T_IEEE_F64LE, dataspace({}).id(),
                  &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             const std::vector<int64_t>& values) {
  const Hdf5Handle space = dataspace({static_cast<int64_t>(values.size())});
  const int64_t none = 0;  // HDF5 wants an address, even of nothing.
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, space.id(),
                  values.empty() ? &none : values.data());
}

std::string Hdf5File::text_attribute(const std::string& object, const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), path_.string(), object, name);
  const Hdf5Handle type(H5Aget_type(attribute.attribute.id()));
  if (H5Tget_class(type.id()) != H5T_STRING) fail("{}: expected a text", attribute.where);
  if (H5Tis_variable_str(type.id()) > 0) {  // As h5py writes strings.
    char* text = nullptr;
    checked(H5Aread(attribute.attribute.id(), type.id(), &text), "read", attribute.where);
    const std::string result = text == nullptr ? "" : text;
    H5free_memory(text);
    return result;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  checked(H5Aread(attribute.attribute.id(), type.id(), text.data()), "read", attribute.where);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

int64_t Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  return read_number<int64_t>(open_attribute(handle_.id(), path_.string(), object, name),
                              H5T_NATIVE_INT64);
}

double Hdf5File::float_attribute(const std::string& object, const std::string& name) const {
  return read_number<double>(open_attribute(handle_.id(), path_.string(), object, name),
                             H5T_NATIVE_DOUBLE);
}

std::vector<int64_t> Hdf5File::integers_attribute(const std::string& object,
                                                  const std::string& name) const {
  return read_numbers<int64_t>(open_attribute(handle_.id(), path_.string(), object, name),
                               H5T_NATIVE_INT64);
}

}  // namespace tessera
