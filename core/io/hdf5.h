// SPDX-License-Identifier: Apache-2.0
// A wrapper of the part of HDF5 that token files and checkpoints use: typed datasets in checksummed
// chunks, attributes and virtual datasets. Every failure is an Error with the name of the file and
// the innermost reason of HDF5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/region.h"

namespace tessera {

// Element types, little-endian on disk. bf16 is a 16-bit HDF5 float type with 8 exponent bits,
// which other clients (h5py) read as f32; bool is u8.
enum class StoredType { kU8, kU32, kU64, kI32, kI64, kF32, kF64, kBF16 };
std::string_view stored_type_name(StoredType type);
int64_t stored_type_bytes(StoredType type);
StoredType stored_type(DType dtype);

// Owns an HDF5 identifier (hid_t).
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(int64_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(other.release()) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();
  int64_t id() const { return id_; }
  int64_t release() { return std::exchange(id_, -1); }

 private:
  int64_t id_ = -1;
};

class Hdf5Dataset {
 public:
  StoredType type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return element_count(shape_); }

  // Reads row-major bytes of a region, or of the whole. Sizes must agree (CHECK). A chunk whose
  // checksum does not match its bytes is an Error.
  void read(const Region& region, std::span<std::byte> bytes) const;
  void read(std::span<std::byte> bytes) const { read(Region::whole(shape_), bytes); }
  void write(const Region& region, std::span<const std::byte> bytes);
  void write(std::span<const std::byte> bytes) { write(Region::whole(shape_), bytes); }
  // Appends elements to a one-dimensional growable dataset.
  void append(std::span<const std::byte> bytes);
  // Returns false if a part was never written, which HDF5 would read as zeros.
  bool fully_stored() const;
  bool is_virtual() const;
  // Returns the file offset of a reserved dataset; 0 if it has no elements.
  int64_t file_offset() const;
  int64_t id() const { return handle_.id(); }  // Borrowed hid_t.

 private:
  friend class Hdf5File;
  template <typename Transfer>
  void transfer(const Region& region, size_t bytes, const Transfer& transfer) const;
  std::string where_;  // "file:path", for errors.
  Hdf5Handle handle_;
  StoredType type_ = StoredType::kU8;
  std::vector<int64_t> shape_;
};

// The default chunk shape: whole trailing axes, then as much of the next axis as fits in
// `max_bytes`, so that a chunk is a contiguous run of the row-major elements.
constexpr int64_t kMaxChunkBytes = int64_t{16} << 20;
std::vector<int64_t> hdf5_chunk(const std::vector<int64_t>& shape, int64_t element_bytes,
                                int64_t max_bytes = kMaxChunkBytes);

struct Hdf5Layout {
  std::vector<int64_t> chunk;  // Empty: hdf5_chunk.
  int compression = 0;         // Deflate level 1 to 9 after a byte shuffle; 0: none.
  bool growable = false;       // For `append`; one-dimensional only.
};

// One source of a virtual dataset: `dataset` of `file` holds this region of it and nothing else.
// The path `file` is relative to the folder of the file with the virtual dataset.
struct Hdf5Source {
  Region region;
  std::string file;
  std::string dataset;
};

class Hdf5File {
 public:
  // Opens to read. Error if it is missing, unreadable, truncated or not an HDF5 file.
  static Hdf5File open(const std::filesystem::path& path);
  // Creates or replaces a file, in the format of HDF5 1.10, whose metadata is checksummed. Datasets
  // of 64 KiB or more begin at multiples of `alignment`. Errors name the file `shown`; if that is
  // empty, `path`.
  static Hdf5File create(const std::filesystem::path& path, int64_t alignment = 1,
                         const std::filesystem::path& shown = {});

  Hdf5File() = default;
  Hdf5File(Hdf5File&&) noexcept = default;
  Hdf5File& operator=(Hdf5File&&) noexcept = default;
  ~Hdf5File();  // Closes and ignores errors.
  // Closes. Error if not everything could be written; the file is then truncated to free its space.
  void close();

  bool has(const std::string& path) const;
  std::vector<std::string> dataset_paths() const;  // Sorted.
  Hdf5Dataset dataset(const std::string& path) const;

  void create_group(const std::string& path);
  // Creates a dataset and its groups. A dataset of at most one element is stored in the checksummed
  // object header; any other is chunked and checksummed (Fletcher-32).
  Hdf5Dataset create_dataset(const std::string& path, StoredType type,
                             const std::vector<int64_t>& shape, const Hdf5Layout& layout = {});
  // Allocates a contiguous run of the file for the dataset. The caller writes it without HDF5, at
  // file_offset() after this file is closed. HDF5 neither fills nor checksums it.
  Hdf5Dataset create_reserved(const std::string& path, StoredType type,
                              const std::vector<int64_t>& shape);
  void create_virtual(const std::string& path, StoredType type, const std::vector<int64_t>& shape,
                      const std::vector<Hdf5Source>& sources);
  // Writes a string of any length as a checksummed dataset.
  void write_text(const std::string& path, std::string_view text);

  // Access attributes of the group or dataset `object` ("/" for the root).
  bool has_attribute(const std::string& object, const std::string& name) const;
  void set_attribute(const std::string& object, const std::string& name, std::string_view text);
  void set_attribute(const std::string& object, const std::string& name, int64_t value);
  void set_attribute(const std::string& object, const std::string& name,
                     const std::vector<int64_t>& values);
  std::string text_attribute(const std::string& object, const std::string& name) const;
  int64_t integer_attribute(const std::string& object, const std::string& name) const;

 private:
  // Returns "file:path", for errors.
  std::string place(const std::string& path) const;
  // Creates a dataset and the groups above it.
  Hdf5Dataset add_dataset(const std::string& path, StoredType type,
                          const std::vector<int64_t>& shape, const Hdf5Handle& space,
                          const Hdf5Handle& properties);

  std::filesystem::path path_;   // Name in errors.
  std::filesystem::path place_;  // Name of a file that is being written.
  Hdf5Handle handle_;
};

// Fast random reads of a one-dimensional dataset by pread: for reads of a few kilobytes the lookup
// and lock of HDF5 cost more than the bytes. HDF5 reads each piece of the dataset once, checksum
// included; later reads go to the file offset that was found to hold the same bytes. Datasets whose
// bytes are not stored as they are in memory (compressed ones) are always read by HDF5.
class Hdf5DirectReader {
 public:
  // The dataset and its file must outlive the reader. `where` names it in errors.
  Hdf5DirectReader(const Hdf5Dataset& dataset, std::string where);
  ~Hdf5DirectReader();
  Hdf5DirectReader(Hdf5DirectReader&&) noexcept;

  // Reads the elements from `begin` on. Thread-safe. Error if the file was changed or truncated
  // since it was opened.
  void read(int64_t begin, std::span<std::byte> bytes) const;

  // Return the number of pieces with a known file offset, and of all: for tests and benchmarks.
  int64_t pieces_found() const;
  int64_t num_pieces() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
