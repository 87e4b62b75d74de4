// SPDX-License-Identifier: Apache-2.0
// Reads and writes the safetensors files of Hugging Face: a JSON header with the dtype, shape and
// offsets of each tensor, then the bytes. Files are untrusted: headers are checked completely, and
// tensors are read in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/region.h"
#include "core/io/file.h"

namespace tessera {

enum class SafetensorsType {
  kF64,
  kF32,
  kBF16,
  kF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3  // Read only.
};
std::string_view safetensors_type_name(SafetensorsType type);  // "F32", as in headers.
int64_t safetensors_type_bytes(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Offset in the file.

  int64_t elements() const { return element_count(shape); }
  std::string text() const;  // "F32[48 16]"
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // Sorted by `begin`.
  std::map<std::string, std::string> metadata;  // The member __metadata__.
};

// Longest header that is accepted.
inline constexpr int64_t kLongestSafetensorsHeader = 100'000'000;

// Returns the number of bytes before the tensors of a file of `file_bytes`, from its first eight
// bytes.
int64_t safetensors_head_bytes(std::string_view first_bytes, int64_t file_bytes,
                               const std::string& where);
// Parses those bytes. Error unless the tensors fill the rest of the file without gap or overlap,
// and the size of each follows from its dtype and shape. Tensors need not be aligned.
SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes,
                                           const std::string& where);

// One file. Reading is thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  // Reads elements from `first` on into `values`. f64 and wide integers are rounded to nearest.
  void read(const SafetensorsTensor& tensor, int64_t first, std::span<float> values) const;

 private:
  ByteFile file_;
  SafetensorsHeader header_;
};

// The model in a directory: model.safetensors, or the files of model.safetensors.index.json.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  std::vector<std::string> names() const;  // Sorted.
  const SafetensorsTensor* find(const std::string& name) const;
  void read(const std::string& name, int64_t first, std::span<float> values) const;

 private:
  struct Place {
    size_t file = 0;
    size_t tensor = 0;
  };
  void add_file(const std::string& name);

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

// Returns the file of each tensor, from the text of an index. Error for a name with a directory.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& where);

// The tensors to write; `begin` is ignored.
struct SafetensorsPlan {
  std::vector<SafetensorsTensor> tensors;  // In the order of their values.
  int64_t max_file_bytes = 5'000'000'000;  // A larger tensor gets its own file.

  // The tensors of each file, [first, last).
  struct Range {
    size_t first = 0, last = 0;
  };
  std::vector<Range> files() const;
};

// Writes model.safetensors, or model-00001-of-00003.safetensors and so on with
// model.safetensors.index.json, into an existing directory. Each file appears complete, the index
// last. Equal values give equal bytes.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& directory, SafetensorsPlan plan);
  ~SafetensorsWriter();  // Without `finish`, removes the unfinished file.

  // Writes the next values, tensor after tensor, rounded to their floating dtype. Error for a
  // finite value beyond the range of the dtype.
  void write(std::span<const float> values);
  // Error if values are missing (CHECK) or cannot be written.
  void finish();
  std::vector<std::string> files() const;  // Files written so far, in order.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
