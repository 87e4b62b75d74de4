// SPDX-License-Identifier: Apache-2.0
// The small part of HDF5 that token files and checkpoints need: typed datasets in checksummed
// chunks, attributes, virtual datasets. Every failure is an Error with the file's name and HDF5's
// own innermost reason. Not a general binding; no HDF5 header is included here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/region.h"

namespace tessera {

// Little-endian on disk. bf16 is a 16-bit HDF5 float type with 8 exponent bits, which other HDF5
// clients (h5py) read as f32; bool is u8.
enum class StoredType { kU8, kU32, kU64, kI32, kI64, kF32, kF64, kBF16 };
std::string_view stored_type_name(StoredType type);
int64_t stored_type_bytes(StoredType type);
StoredType stored_type(DType dtype);

// Owns one HDF5 identifier.
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(int64_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(other.release()) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();
  int64_t id() const { return id_; }
  int64_t release() {
    const int64_t id = id_;
    id_ = -1;
    return id;
  }

 private:
  int64_t id_ = -1;
};

class Hdf5Dataset {
 public:
  StoredType type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const;

  // Row-major bytes of a region, or of the whole. Sizes must agree (CHECK). A chunk whose checksum
  // does not match its bytes is an Error.
  void read(const Region& region, std::span<std::byte> bytes) const;
  void read(std::span<std::byte> bytes) const;
  void write(const Region& region, std::span<const std::byte> bytes);
  void write(std::span<const std::byte> bytes);
  // Grows a one-dimensional growable dataset by these elements.
  void append(std::span<const std::byte> bytes);
  // False if part of it was never written, which HDF5 would read as zeros.
  bool fully_stored() const;
  bool is_virtual() const;
  // Where the bytes of a reserved dataset lie in the file; 0 if it has none.
  int64_t file_offset() const;
  int64_t id() const { return handle_.id(); }  // HDF5's, borrowed.

 private:
  friend class Hdf5File;
  std::string where_;  // "file:path", for errors.
  Hdf5Handle handle_;
  StoredType type_ = StoredType::kU8;
  std::vector<int64_t> shape_;
};

// The chunks of a dataset that asks for none: whole trailing axes first, then as much of the next
// as fits in `max_bytes`, so that a chunk is a run of the row-major elements.
constexpr int64_t kMaxChunkBytes = int64_t{16} << 20;
std::vector<int64_t> hdf5_chunk(const std::vector<int64_t>& shape, int64_t element_bytes,
                                int64_t max_bytes = kMaxChunkBytes);

struct Hdf5Layout {
  std::vector<int64_t> chunk;  // Empty: hdf5_chunk.
  int compression = 0;         // Deflate level 1-9 after a byte shuffle; 0 for none.
  bool growable = false;       // One-dimensional only; `append` adds to it.
};

// One source of a virtual dataset: `dataset` of `file` holds this region of it and nothing else.
// The path `file` is relative to the folder of the file with the virtual dataset.
struct Hdf5Source {
  Region region;
  std::string file;
  std::string dataset;
};

// Whether HDF5 keeps chunks that it has read, while the dataset is open: of no use to those who
// read whole chunks once, from many datasets.
enum class ChunkCache { kKept, kNone };

class Hdf5File {
 public:
  // Read-only. Error if it is missing, unreadable, truncated or no HDF5 file.
  static Hdf5File open(const std::filesystem::path& path);
  // A new file, which replaces one of the same name, in the format of HDF5 1.10, whose metadata is
  // checksummed. Datasets of 64 KiB or more begin at multiples of `alignment`.
  static Hdf5File create(const std::filesystem::path& path, int64_t alignment = 1);

  Hdf5File() = default;
  Hdf5File(Hdf5File&&) noexcept = default;
  Hdf5File& operator=(Hdf5File&&) noexcept = default;
  ~Hdf5File();  // Closes silently.
  // Closes, and reports what could not be written; the file is then empty, to give its room back.
  void close();

  bool has(const std::string& path) const;
  std::vector<std::string> dataset_paths() const;  // All of them, sorted.
  Hdf5Dataset dataset(const std::string& path, ChunkCache cache = ChunkCache::kKept) const;

  void create_group(const std::string& path);
  // Creates the groups on the way. A dataset of one element or none is kept in the checksummed
  // object header; any other is chunked and checksummed (Fletcher-32).
  Hdf5Dataset create_dataset(const std::string& path, StoredType type,
                             const std::vector<int64_t>& shape, const Hdf5Layout& layout = {});
  // Reserves one run of bytes of the file for the dataset, which the caller writes past HDF5, at
  // file_offset() once this file is closed. HDF5 neither fills nor checksums it.
  Hdf5Dataset create_reserved(const std::string& path, StoredType type,
                              const std::vector<int64_t>& shape);
  void create_virtual(const std::string& path, StoredType type, const std::vector<int64_t>& shape,
                      const std::vector<Hdf5Source>& sources);
  // One string as a checksummed dataset of its own, for texts of any length.
  void write_text(const std::string& path, std::string_view text);
  std::string read_text(const std::string& path) const;

  // Attributes of the group or dataset `object` ("/" for the root).
  bool has_attribute(const std::string& object, const std::string& name) const;
  std::vector<std::string> attribute_names(const std::string& object) const;
  void set_attribute(const std::string& object, const std::string& name, std::string_view text);
  void set_attribute(const std::string& object, const std::string& name, int64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name,
                     const std::vector<int64_t>& values);
  std::string text_attribute(const std::string& object, const std::string& name) const;
  int64_t integer_attribute(const std::string& object, const std::string& name) const;
  double float_attribute(const std::string& object, const std::string& name) const;
  std::vector<int64_t> integers_attribute(const std::string& object, const std::string& name) const;

 private:
  std::filesystem::path path_;
  Hdf5Handle handle_;
};

}  // namespace tessera
