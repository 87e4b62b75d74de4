// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face directory. Quantised ones have the name, shape and dtype here that
// they have in a file that is not quantised. They are dequantised in pieces as they are read, to
// the bits that transformers computes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/io/safetensors.h"

namespace tessera {

// Whether the files of a folder, or of a URL, have a tensor: by the index, or the header of the one
// file. Nothing if there are no files.
std::optional<bool> has_tensor(const std::filesystem::path& folder, const std::string& name);

// quantization_config in config.json.
struct HfQuantisation {
  enum class Method { kNone, kFp8, kMxfp4 };
  Method method = Method::kNone;
  int64_t block_rows = 128, block_columns = 128;  // kFp8: values that share a scale.
  SafetensorsType type = SafetensorsType::kBF16;  // What dequantised values are rounded to.
};

class HfFiles {
 public:
  // Error for a quantization_config of another method, or with a setting that would change values;
  // and for quantised tensors whose scales are missing or have another shape.
  explicit HfFiles(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return files_.directory(); }
  // The text of config.json. Error if there is none.
  const std::string& config_json() const;
  std::vector<std::string> names() const;  // Sorted.
  const SafetensorsTensor* find(const std::string& name) const;
  // Reads elements from `first` on into `values`.
  void read(const std::string& name, int64_t first, std::span<float> values) const;

 private:
  void add_fp8(const SafetensorsTensor& weight);
  void add_mxfp4(const SafetensorsTensor& blocks);
  const SafetensorsTensor& scales_of(const SafetensorsTensor& tensor, const std::string& name,
                                     const std::vector<int64_t>& shape,
                                     std::initializer_list<SafetensorsType> types) const;
  void read_fp8(const SafetensorsTensor& weight, int64_t first, std::span<float> values) const;
  void read_mxfp4(const SafetensorsTensor& weight, int64_t first, std::span<float> values) const;

  std::optional<std::string> config_json_;
  HfQuantisation quantisation_;
  SafetensorsModel files_;
  std::map<std::string, SafetensorsTensor> dequantised_;
  std::set<std::string> hidden_;  // Tensors of the files that these replace.
};

}  // namespace tessera
