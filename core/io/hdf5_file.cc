// SPDX-License-Identifier: Apache-2.0
// Implements Hdf5File of hdf5.h: opening, creating and closing files, their groups, datasets,
// attributes and virtual datasets.
#include <algorithm>
#include <system_error>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/io/hdf5_internal.h"
#include "core/io/http.h"

namespace tessera {

using namespace hdf5_internal;

namespace {

constexpr hsize_t kAlignedBytes = 65536;
// Size of the chunk cache of a dataset, for random reads (shuffled tokens).
constexpr size_t kChunkCacheBytes = size_t{32} << 20;
constexpr int64_t kMostNestedGroups = 32;  // A checkpoint has as many as a layer's path.
constexpr herr_t kTooDeep = 1;             // Result of a visitor: positive values end a visit.

Hdf5Handle dataset_creation_list(const Hdf5Layout& layout, const std::vector<int64_t>& shape,
                                 int64_t element_bytes) {
  Hdf5Handle list = creation_list(H5P_DATASET_CREATE);
  if (layout.chunk.empty() && element_count(shape) <= 1) {
    H5Pset_layout(list.id(), H5D_COMPACT);
    return list;
  }
  const auto chunk = layout.chunk.empty() ? hdf5_chunk(shape, element_bytes) : layout.chunk;
  H5Pset_chunk(list.id(), static_cast<int>(chunk.size()), sizes(chunk).data());
  if (layout.compression > 0) {
    H5Pset_shuffle(list.id());
    H5Pset_deflate(list.id(), static_cast<unsigned>(layout.compression));
  }
  H5Pset_fletcher32(list.id());
  return list;
}

void add_group(hid_t file, const std::string& path, const std::string& where) {
  owned(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, creation_list(H5P_GROUP_CREATE).id(),
                   H5P_DEFAULT),
        "create the group", where);
}

// Creates an object and the groups above it, which HDF5 would give timestamps.
Hdf5Handle create_object(hid_t file, const std::string& path, hid_t type, hid_t space,
                         hid_t creation, const std::string& where) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (H5Lexists(file, group.c_str(), H5P_DEFAULT) <= 0) add_group(file, group, group);
  }
  // Without a chunk cache, chunks are written at once: on a full disk the write fails and not the
  // closing of the dataset.
  const Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.id(), 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
  return owned(H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, creation, access.id()),
               "create the dataset", where);
}

// Returns whether the file itself has an object of this path. Links are not followed: one could
// lead to any file, or to a FIFO, which blocks.
bool has_object(hid_t file, const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    H5L_info_t link{};
    // H5Lexists fails unless every parent link exists.
    if (part != "/" &&
        (H5Lexists(file, part.c_str(), H5P_DEFAULT) <= 0 ||
         H5Lget_info(file, part.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD))
      return false;
    if (end == std::string::npos) return true;
  }
}

Hdf5Handle open_dataset(hid_t file, const std::string& path, hid_t access,
                        const std::string& where) {
  if (!has_object(file, path)) fail("{}: no such dataset (links are not followed)", where);
  Hdf5Handle dataset = owned(H5Dopen2(file, path.c_str(), access), "open the dataset", where);
  const Hdf5Handle list(H5Dget_create_plist(dataset.id()));
  if (H5Pget_external_count(list.id()) > 0)
    fail("{}: its bytes are in other files (HDF5 external storage), which are not read", where);
  return dataset;
}

}  // namespace

// Divides an axis evenly, because the file stores the last chunk at full size.
std::vector<int64_t> hdf5_chunk(const std::vector<int64_t>& shape, int64_t element_bytes,
                                int64_t max_bytes) {
  std::vector<int64_t> chunk(shape.size(), 1);
  int64_t room = max_bytes / element_bytes;
  for (size_t i = shape.size(); i-- > 0 && room > 1;) {
    if (shape[i] == 0) continue;
    const int64_t pieces = (shape[i] + room - 1) / room;
    chunk[i] = (shape[i] + pieces - 1) / pieces;
    room = pieces == 1 ? room / chunk[i] : 1;
  }
  return chunk;
}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  silence();
  std::error_code error;
  if (!is_url(path) && !std::filesystem::exists(path, error))
    fail("{}: no such file", path.string());
  require_regular_file(path);
  Hdf5File file;
  file.path_ = path;
  const Hdf5Handle access = is_url(path) ? remote_access_list() : Hdf5Handle();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, is_url(path) ? access.id() : H5P_DEFAULT);
  if (id < 0) {
    const std::string why = reason();
    if (why.find("signature") != std::string::npos) fail("{}: not an HDF5 file", path.string());
    const bool lock = why.find("unable to lock") != std::string::npos;
    fail(
        "{}: cannot open: {}{}", path.string(), why,
        lock ? "; if its file system does not support locks, set HDF5_USE_FILE_LOCKING=FALSE" : "");
  }
  file.handle_ = Hdf5Handle(id);
  return file;
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, int64_t alignment,
                          const std::filesystem::path& shown) {
  silence();
  require_replaceable(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // A link is not written through.
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_alignment(access.id(), kAlignedBytes, static_cast<hsize_t>(alignment));
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  const Hdf5Handle creation = creation_list(H5P_FILE_CREATE);
  Hdf5File file;
  file.path_ = shown.empty() ? path : shown;
  file.place_ = path;
  file.handle_ = owned(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.id(), access.id()), "create",
                       file.path_.string());
  return file;
}

Hdf5File::~Hdf5File() {
  if (handle_.id() < 0) return;
  try {
    close();
  } catch (const std::exception&) {  // Callers that check for errors call close().
  }
}

void Hdf5File::close() {
  silence();
  if (H5Fclose(handle_.release()) >= 0) return;
  const std::string why = reason();
  // HDF5 keeps a file open that it could not flush, and with it its space on the full disk.
  std::error_code ignored;
  std::filesystem::resize_file(place_, 0, ignored);
  fail("{}: cannot write: {}", path_.string(), why);
}

std::string Hdf5File::place(const std::string& path) const {
  return fmt::format("{}:{}", path_.string(), path);
}

void Hdf5File::create_group(const std::string& path) {
  silence();
  add_group(handle_.id(), path, place(path));
}

bool Hdf5File::has(const std::string& path) const {
  silence();
  return has_object(handle_.id(), path);
}

std::vector<std::string> Hdf5File::dataset_paths() const {
  silence();
  std::vector<std::string> paths;
  // HDF5 1.10 and 1.14 pass H5O_info_t and H5O_info1_t.
  const auto visit = [](hid_t, const char* name, const auto* info, void* out) -> herr_t {
    // HDF5 follows the whole path of each object: the time grows with the cube of the depth.
    if (std::ranges::count(std::string_view(name), '/') > kMostNestedGroups) return kTooDeep;
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  // In the file's own order: for others HDF5 1.10 builds a table, and frees memory that it did not
  // initialise if a link in the table is damaged.
  const herr_t visited =
      H5Ovisit2(handle_.id(), H5_INDEX_NAME, H5_ITER_NATIVE, visit, &paths, H5O_INFO_BASIC);
  if (checked(visited, "list the datasets", path_.string()) == kTooDeep)
    fail("{}: its groups are nested more than {} deep", path_.string(), kMostNestedGroups);
  std::ranges::sort(paths);
  return paths;
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  silence();
  Hdf5Dataset dataset;
  dataset.where_ = place(path);
  const Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.id(), 1021, kChunkCacheBytes, H5D_CHUNK_CACHE_W0_DEFAULT);
  dataset.handle_ = open_dataset(handle_.id(), path, access.id(), dataset.where_);
  const Hdf5Handle type(H5Dget_type(dataset.handle_.id()));
  dataset.type_ = read_type(type.id(), dataset.where_);
  const Hdf5Handle space(H5Dget_space(dataset.handle_.id()));
  dataset.shape_ = extent(space.id());
  return dataset;
}

Hdf5Dataset Hdf5File::add_dataset(const std::string& path, StoredType type,
                                  const std::vector<int64_t>& shape, const Hdf5Handle& space,
                                  const Hdf5Handle& properties) {
  Hdf5Dataset dataset;
  dataset.where_ = place(path);
  dataset.type_ = type;
  dataset.shape_ = shape;
  dataset.handle_ =
      create_object(handle_.id(), path, type_id(type), space.id(), properties.id(), dataset.where_);
  return dataset;
}

Hdf5Dataset Hdf5File::create_dataset(const std::string& path, StoredType type,
                                     const std::vector<int64_t>& shape, const Hdf5Layout& layout) {
  silence();
  CHECK(!layout.growable || (shape.size() == 1 && !layout.chunk.empty()));
  const hsize_t unlimited = H5S_UNLIMITED;
  const Hdf5Handle space = layout.growable
                               ? Hdf5Handle(H5Screate_simple(1, sizes(shape).data(), &unlimited))
                               : dataspace(shape);
  return add_dataset(path, type, shape, space,
                     dataset_creation_list(layout, shape, stored_type_bytes(type)));
}

Hdf5Dataset Hdf5File::create_reserved(const std::string& path, StoredType type,
                                      const std::vector<int64_t>& shape) {
  silence();
  const Hdf5Handle creation = creation_list(H5P_DATASET_CREATE);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  return add_dataset(path, type, shape, dataspace(shape), creation);
}

void Hdf5File::create_virtual(const std::string& path, StoredType type,
                              const std::vector<int64_t>& shape,
                              const std::vector<Hdf5Source>& sources) {
  silence();
  const Hdf5Handle creation = creation_list(H5P_DATASET_CREATE);
  for (const Hdf5Source& source : sources) {
    const Hdf5Handle target = dataspace(shape);
    select(target.id(), source.region, place(path));
    const Hdf5Handle source_space = dataspace(source.region.shape);
    checked(H5Pset_virtual(creation.id(), target.id(), source.file.c_str(), source.dataset.c_str(),
                           source_space.id()),
            "map a virtual dataset", place(path));
  }
  add_dataset(path, type, shape, dataspace(shape), creation);
}

void Hdf5File::write_text(const std::string& path, std::string_view text) {
  silence();
  const std::string where = place(path);
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  const Hdf5Handle type = text_type(padded.size());
  const Hdf5Handle space = dataspace({1});
  const Hdf5Handle creation =
      dataset_creation_list({.chunk = {1}}, {1}, 1);  // Chunks are checksummed.
  const Hdf5Handle dataset =
      create_object(handle_.id(), path, type.id(), space.id(), creation.id(), where);
  checked(H5Dwrite(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()), "write",
          where);
}

namespace {

struct Attribute {
  Hdf5Handle handle;
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
  const std::string where = fmt::format("{}:{}", file_name, object);
  if (!has_object(file, object)) fail("{}: no such object (links are not followed)", where);
  const Hdf5Handle owner = owned(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open", where);
  if (H5Aexists(owner.id(), name.c_str()) <= 0)
    fail("{}: the attribute '{}' is missing", where, name);
  const std::string place = fmt::format("{}@{}", where, name);
  return {owned(H5Aopen(owner.id(), name.c_str(), H5P_DEFAULT), "open", place), place};
}

}  // namespace

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  silence();
  return has_object(handle_.id(), object) &&
         H5Aexists_by_name(handle_.id(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             std::string_view text) {
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  const Hdf5Handle type = text_type(padded.size());
  write_attribute(handle_.id(), path_.string(), object, name, type.id(), dataspace({}).id(),
                  padded.data());
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, int64_t value) {
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, dataspace({}).id(),
                  &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             const std::vector<int64_t>& values) {
  const Hdf5Handle space = dataspace({std::ssize(values)});
  const int64_t none = 0;  // HDF5 needs an address even for no elements.
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, space.id(),
                  values.empty() ? &none : values.data());
}

std::string Hdf5File::text_attribute(const std::string& object, const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), path_.string(), object, name);
  const Hdf5Handle type(H5Aget_type(attribute.handle.id()));
  if (H5Tget_class(type.id()) != H5T_STRING) fail("{}: expected a text", attribute.where);
  if (H5Tis_variable_str(type.id()) > 0) {  // h5py writes such strings.
    char* text = nullptr;
    checked(H5Aread(attribute.handle.id(), type.id(), &text), "read", attribute.where);
    std::string result = text == nullptr ? "" : text;
    H5free_memory(text);
    return result;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  checked(H5Aread(attribute.handle.id(), type.id(), text.data()), "read", attribute.where);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

int64_t Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), path_.string(), object, name);
  const Hdf5Handle type(H5Aget_type(attribute.handle.id()));
  const H5T_class_t kind = H5Tget_class(type.id());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT)
    fail("{}: expected a number, got HDF5 type class {}", attribute.where, static_cast<int>(kind));
  const Hdf5Handle space(H5Aget_space(attribute.handle.id()));
  if (const hssize_t values = H5Sget_simple_extent_npoints(space.id()); values != 1)
    fail("{}: expected one number, got {}", attribute.where, values);
  int64_t value = 0;
  checked(H5Aread(attribute.handle.id(), H5T_NATIVE_INT64, &value), "read", attribute.where);
  return value;
}

}  // namespace tessera
