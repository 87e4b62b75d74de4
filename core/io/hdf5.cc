// SPDX-License-Identifier: Apache-2.0
#include "core/io/hdf5.h"

#include <algorithm>
#include <system_error>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/hdf5_internal.h"

namespace tessera {

using namespace hdf5_internal;

namespace {

constexpr hsize_t kAlignedBytes = 65536;
// Chunks read at random (shuffled tokens) are found again in this cache, per dataset.
constexpr size_t kChunkCacheBytes = size_t{32} << 20;

Hdf5Handle creation_list(const Hdf5Layout& layout, const std::vector<int64_t>& shape,
                         int64_t element_bytes) {
  Hdf5Handle list(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(list.id(), false);  // Equal content gives equal files.
  if (layout.chunk.empty() && product(shape) <= 1) {
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

}  // namespace

// The axis that is cut is cut evenly, because the file holds a last chunk at full size.
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
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail("{}: no such file", path.string());
  require_regular_file(path);
  Hdf5File file;
  file.path_ = path;
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0) {
    const std::string why = reason();
    if (why.find("signature") != std::string::npos) fail("{}: not an HDF5 file", path.string());
    const bool lock = why.find("unable to lock") != std::string::npos;
    fail("{}: cannot open: {}{}", path.string(), why,
         lock ? "; if its file system knows no locks, set HDF5_USE_FILE_LOCKING=FALSE" : "");
  }
  file.handle_ = Hdf5Handle(id);
  return file;
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, int64_t alignment) {
  silence();
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_alignment(access.id(), kAlignedBytes, static_cast<hsize_t>(alignment));
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.id(), false);  // Of the root group: equal content, equal files.
  Hdf5File file;
  file.path_ = path;
  file.handle_ = owned(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), "create",
                       path.string());
  return file;
}

Hdf5File::~Hdf5File() {
  if (handle_.id() < 0) return;
  try {
    close();
  } catch (const std::exception&) {  // Whoever needs to know has called close().
  }
}

void Hdf5File::close() {
  silence();
  if (H5Fclose(handle_.release()) >= 0) return;
  const std::string why = reason();
  // HDF5 keeps a file open that it could not flush, and with it the room on the full disk.
  std::error_code ignored;
  std::filesystem::resize_file(path_, 0, ignored);
  fail("{}: cannot write: {}", path_.string(), why);
}

void Hdf5File::create_group(const std::string& path) {
  silence();
  const Hdf5Handle creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation.id(), false);
  owned(H5Gcreate2(handle_.id(), path.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
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

Hdf5Dataset Hdf5File::dataset(const std::string& path, ChunkCache cache) const {
  silence();
  Hdf5Dataset dataset;
  dataset.where_ = fmt::format("{}:{}", path_.string(), path);
  if (!has(path)) fail("{}: no such dataset", dataset.where_);
  const Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.id(), 1021, cache == ChunkCache::kNone ? 0 : kChunkCacheBytes,
                     H5D_CHUNK_CACHE_W0_DEFAULT);
  dataset.handle_ =
      owned(H5Dopen2(handle_.id(), path.c_str(), access.id()), "open the dataset", dataset.where_);
  const Hdf5Handle type(H5Dget_type(dataset.handle_.id()));
  dataset.type_ = read_type(type.id(), dataset.where_);
  const Hdf5Handle space(H5Dget_space(dataset.handle_.id()));
  dataset.shape_ = extent(space.id());
  return dataset;
}

namespace {

// HDF5 would make them itself, but with the time of day in them.
void create_groups_above(hid_t file, const std::string& path) {
  const Hdf5Handle creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation.id(), false);
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0) continue;
    owned(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
          "create the group", group);
  }
}

Hdf5Handle create_object(hid_t file, const std::string& path, hid_t type, hid_t space,
                         hid_t creation, const std::string& where) {
  create_groups_above(file, path);
  // Chunks are written at once: on a full disk a write may fail, but closing a dataset must not.
  const Hdf5Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.id(), 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
  return owned(H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, creation, access.id()),
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

Hdf5Dataset Hdf5File::create_reserved(const std::string& path, StoredType type,
                                      const std::vector<int64_t>& shape) {
  silence();
  Hdf5Dataset dataset;
  dataset.where_ = fmt::format("{}:{}", path_.string(), path);
  dataset.type_ = type;
  dataset.shape_ = shape;
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.id(), false);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  const Hdf5Handle space = dataspace(shape);
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
    H5Sselect_hyperslab(target.id(), H5S_SELECT_SET, sizes(source.region.origin).data(), nullptr,
                        sizes(source.region.shape).data(), nullptr);
    const Hdf5Handle origin = dataspace(source.region.shape);
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
  const Hdf5Handle type = text_type(padded.size());
  const Hdf5Handle space = dataspace({1});
  const Hdf5Handle creation = creation_list({.chunk = {1}}, {1}, 1);  // Chunks are checksummed.
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

}  // namespace tessera
