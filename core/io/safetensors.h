// SPDX-License-Identifier: Apache-2.0
// Reading Hugging Face's safetensors: a JSON header with each tensor's dtype, shape and place, then
// the bytes. Files come from anywhere: nothing of a header is believed before it is checked, and
// tensors are read a piece at a time. Writing is safetensors_writer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/byte_file.h"

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
  kBool
};
std::string_view safetensors_type_name(SafetensorsType type);  // "F32", as in headers.
int64_t safetensors_type_bytes(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Of its bytes, from the beginning of the file.

  int64_t elements() const;
  std::string text() const;  // "F32[48 16]"
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // In the order of their bytes.
  std::map<std::string, std::string> metadata;  // The member __metadata__.
};

// No file needs more for its header, and some claim it.
inline constexpr int64_t kLongestSafetensorsHeader = 100'000'000;

// The bytes of a file of `file_bytes` up to where its tensors begin, from its first eight.
int64_t safetensors_head_bytes(std::string_view first_bytes, int64_t file_bytes,
                               const std::string& where);
// `head` is as many bytes. Error unless the tensors fill the rest of the file, without gap or
// overlap, each with as many bytes as its dtype and shape come to. Where a tensor begins need not
// be a multiple of anything: the format does not ask for it.
SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes,
                                           const std::string& where);

// One file. Reading is thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  // Elements from number `first` on, as many as `values` has, as f32: exact but for f64 and wide
  // integers, which are rounded to nearest.
  void read(const SafetensorsTensor& tensor, int64_t first, std::span<float> values) const;

 private:
  ByteFile file_;
  SafetensorsHeader header_;
};

// The model of a directory: model.safetensors, or the files that model.safetensors.index.json says.
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

// Which file each tensor is in, by the text of an index. Error for a name that is no plain file's.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& where);

}  // namespace tessera
