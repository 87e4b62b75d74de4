// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_files.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/storage/storage.h"

namespace tessera {
namespace {

using Shape = std::vector<int64_t>;
using Method = HfQuantisation::Method;
using enum SafetensorsType;

constexpr const char* kConfig = "config.json";
constexpr const char* kFp8Scales = "_scale_inv";
constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";
constexpr int64_t kGroup = 32;                       // Values of MXFP4 that share a scale.
constexpr int64_t kMxfp4AtATime = int64_t{1} << 20;  // Its values in memory.

int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The row of scales for a row of a weight; both have the weight's leading axes.
int64_t scale_row(int64_t row, int64_t rows, int64_t block_rows) {
  return row / rows * divided_up(rows, block_rows) + row % rows / block_rows;
}

// A member that is absent, or has this value.
void expect_text(const Json& config, std::string_view name, std::string_view expected) {
  const Json* found = config.find(name);
  if (found != nullptr && found->as_string() != expected)
    fail("{} is '{}', expected '{}'; convert the weights to bf16 or f32", found->where(),
         found->as_string(), expected);
}

void read_blocks(const Json& config, HfQuantisation* quantisation) {
  expect_text(config, "activation_scheme", "dynamic");
  expect_text(config, "expert_dtype", "fp8");
  const Json* const sizes = config.find("weight_block_size");
  if (sizes == nullptr) return;
  if (!sizes->is_array() || sizes->as_array().size() != 2)
    fail("{} is not a list of two sizes; convert weights without blocks to bf16 or f32",
         sizes->where());
  const int64_t rows = sizes->as_array()[0].as_integer();
  const int64_t columns = sizes->as_array()[1].as_integer();
  if (rows < 1 || columns < 1)
    fail("{} is [{}, {}], expected sizes from 1", sizes->where(), rows, columns);
  quantisation->block_rows = rows;
  quantisation->block_columns = columns;
}

std::optional<std::string> read_if_exists(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  return read_file(file);
}

HfQuantisation read_quantisation(const std::optional<std::string>& text,
                                 const std::filesystem::path& file) {
  HfQuantisation quantisation;
  if (!text) return quantisation;
  const Json config = parse_json(*text, file.string());
  const Json* const found = config.find("quantization_config");
  if (found == nullptr || found->is_null()) return quantisation;
  // transformers rounds to the dtype of the model.
  for (const char* name : {"torch_dtype", "dtype"})
    if (const Json* dtype = config.find(name); dtype != nullptr && dtype->is_string()) {
      const std::string_view short_name = short_dtype_name(dtype->as_string());
      quantisation.type = short_name == "f32" ? kF32 : short_name == "f16" ? kF16 : kBF16;
    }
  const std::string& method = found->at("quant_method").as_string();
  if (method == "fp8") {
    quantisation.method = Method::kFp8;
    read_blocks(*found, &quantisation);
  } else if (method == "mxfp4") {
    quantisation.method = Method::kMxfp4;
  } else {
    fail(
        "{}: weights quantised by '{}' are not read, expected fp8 or mxfp4; convert them to bf16 "
        "or f32",
        found->where(), method);
  }
  return quantisation;
}

void round_to(SafetensorsType type, std::span<float> values) {
  if (type == kBF16)
    for (float& value : values) value = static_cast<float>(BFloat16(value));
  if (type == kF16)
    for (float& value : values) value = static_cast<float>(Float16(value));
}

// The values of all codes (E2M1) with all scales (exponents): table[16 * scale + code].
std::vector<float> mxfp4_values(SafetensorsType type) {
  std::vector<float> values;
  for (int scale = 0; scale < 256; ++scale)
    for (const float sign : {1.0f, -1.0f})
      for (const float value : {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f})
        values.push_back(std::ldexp(sign * value, scale - 127));
  round_to(type, values);
  return values;
}

}  // namespace

std::optional<bool> has_tensor(const std::filesystem::path& folder, const std::string& name) {
  if (const std::filesystem::path whole = folder / "model.safetensors"; path_exists(whole)) {
    const SafetensorsFile file(whole);
    return std::ranges::count(file.header().tensors, name, &SafetensorsTensor::name) > 0;
  }
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (!path_exists(index)) return {};
  return parse_safetensors_index(read_file(index), index.string()).contains(name);
}

// The method is read first: a file may have a dtype of a method that is refused.
HfFiles::HfFiles(const std::filesystem::path& directory)
    : config_json_(read_if_exists(directory / kConfig)),
      quantisation_(read_quantisation(config_json_, directory / kConfig)),
      files_(directory) {
  for (const std::string& name : files_.names()) {
    const SafetensorsTensor& tensor = *files_.find(name);
    if (tensor.type == kF8E4M3) add_fp8(tensor);
    if (quantisation_.method == Method::kMxfp4 && name.ends_with(kBlocks)) add_mxfp4(tensor);
  }
}

const std::string& HfFiles::config_json() const {
  if (!config_json_)
    fail("{}: cannot open: No such file or directory", (directory() / kConfig).string());
  return *config_json_;
}

const SafetensorsTensor& HfFiles::scales_of(const SafetensorsTensor& tensor,
                                            const std::string& name, const Shape& shape,
                                            std::initializer_list<SafetensorsType> types) const {
  const std::string where = directory().string();
  const SafetensorsTensor* const scales = files_.find(name);
  if (scales == nullptr)
    fail("{}: '{}' is {} and lacks its scales, '{}'", where, tensor.name, tensor.text(), name);
  if (scales->shape != shape || std::ranges::find(types, scales->type) == types.end())
    fail("{}: '{}' is {}, expected {}[{}] for '{}', {}", where, name, scales->text(),
         safetensors_type_name(*types.begin()), fmt::join(shape, " "), tensor.name, tensor.text());
  return *scales;
}

void HfFiles::add_fp8(const SafetensorsTensor& weight) {
  if (quantisation_.method != Method::kFp8 || weight.shape.size() < 2)
    fail(
        "{}: '{}' is {}, expected a matrix, and a quantization_config in config.json with "
        "quant_method fp8",
        directory().string(), weight.name, weight.text());
  Shape shape = weight.shape;
  int64_t& rows = shape[shape.size() - 2];
  rows = divided_up(rows, quantisation_.block_rows);
  shape.back() = divided_up(shape.back(), quantisation_.block_columns);
  hidden_.insert(scales_of(weight, weight.name + kFp8Scales, shape, {kF32, kBF16, kF16}).name);
  dequantised_[weight.name] = {weight.name, quantisation_.type, weight.shape};
}

void HfFiles::add_mxfp4(const SafetensorsTensor& blocks) {
  const std::string name = blocks.name.substr(0, blocks.name.rfind(kBlocks));
  const Shape& shape = blocks.shape;
  if (blocks.type != kU8 || shape.size() != 4 || shape[3] != kGroup / 2 || blocks.elements() == 0)
    fail("{}: '{}' is {}, expected U8[experts rows groups {}]", directory().string(), blocks.name,
         blocks.text(), kGroup / 2);
  if (files_.find(name) != nullptr)
    fail("{} has both '{}' and '{}'; remove one", directory().string(), name, blocks.name);
  scales_of(blocks, name + kScales, {shape.begin(), shape.end() - 1}, {kU8});
  hidden_.insert({blocks.name, name + kScales});
  dequantised_[name] = {name, quantisation_.type, {shape[0], shape[2] * kGroup, shape[1]}};
}

std::vector<std::string> HfFiles::names() const {
  std::set<std::string> names;
  for (const std::string& name : files_.names())
    if (!hidden_.contains(name)) names.insert(name);
  for (const auto& [name, tensor] : dequantised_) names.insert(name);
  return {names.begin(), names.end()};
}

const SafetensorsTensor* HfFiles::find(const std::string& name) const {
  const auto found = dequantised_.find(name);
  if (found != dequantised_.end()) return &found->second;
  return hidden_.contains(name) ? nullptr : files_.find(name);
}

void HfFiles::read(const std::string& name, int64_t first, std::span<float> values) const {
  const auto found = dequantised_.find(name);
  if (found == dequantised_.end()) return files_.read(name, first, values);
  CHECK(first >= 0 && first + std::ssize(values) <= found->second.elements(),
        "'{}': elements {} and {} more", name, first, values.size());
  if (values.empty()) return;
  if (quantisation_.method == Method::kFp8) {
    read_fp8(found->second, first, values);
  } else {
    read_mxfp4(found->second, first, values);
  }
}

// The products in f32 of each value and the scale of its block.
void HfFiles::read_fp8(const SafetensorsTensor& weight, int64_t first,
                       std::span<float> values) const {
  files_.read(weight.name, first, values);
  const int64_t block_rows = quantisation_.block_rows, block_columns = quantisation_.block_columns;
  const int64_t columns = weight.shape.back(), rows = weight.shape[weight.shape.size() - 2];
  const int64_t scale_columns = divided_up(columns, block_columns);
  const int64_t end = first + std::ssize(values);
  const int64_t first_row = scale_row(first / columns, rows, block_rows);
  const int64_t last_row = scale_row((end - 1) / columns, rows, block_rows);
  std::vector<float> scales(static_cast<size_t>((last_row + 1 - first_row) * scale_columns));
  files_.read(weight.name + kFp8Scales, first_row * scale_columns, scales);
  for (int64_t at = first; at < end;) {
    const int64_t column = at % columns, block = column / block_columns;
    const int64_t row = scale_row(at / columns, rows, block_rows) - first_row;
    const float scale = scales[static_cast<size_t>(row * scale_columns + block)];
    const int64_t in_block = std::min(columns - column, block_columns - column % block_columns);
    const int64_t count = std::min(in_block, end - at);
    for (float& value : values.subspan(static_cast<size_t>(at - first), static_cast<size_t>(count)))
      value *= scale;
    at += count;
  }
  round_to(quantisation_.type, values);
}

// The file has [expert, output, group, 16 bytes of two values], the model [expert, input, output].
void HfFiles::read_mxfp4(const SafetensorsTensor& weight, int64_t first,
                         std::span<float> values) const {
  const std::vector<float> table = mxfp4_values(quantisation_.type);
  const int64_t inputs = weight.shape[1], outputs = weight.shape[2], expert = inputs * outputs;
  const int64_t last_row = divided_up(first + std::ssize(values), expert) * outputs;
  std::vector<float> blocks, scales;
  // Rows of all experts of the values: one for each output.
  for (int64_t row = first / expert * outputs, count = 0; row < last_row; row += count) {
    count = std::clamp<int64_t>(kMxfp4AtATime / inputs, 1, outputs - row % outputs);
    blocks.resize(static_cast<size_t>(count * inputs / 2));
    scales.resize(static_cast<size_t>(count * inputs / kGroup));
    files_.read(weight.name + kBlocks, row * inputs / 2, blocks);
    files_.read(weight.name + kScales, row * inputs / kGroup, scales);
    const int64_t of_input_0 = row / outputs * expert + row % outputs - first;
    for (int64_t input = 0; input < inputs; ++input)
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = of_input_0 + input * outputs + i, from = i * inputs + input;
        if (at < 0 || at >= std::ssize(values)) continue;
        const auto byte = static_cast<unsigned>(blocks[static_cast<size_t>(from / 2)]);
        const auto scale = static_cast<unsigned>(scales[static_cast<size_t>(from / kGroup)]);
        const unsigned code = input % 2 == 0 ? byte & 15u : byte >> 4;
        values[static_cast<size_t>(at)] = table[16 * scale + code];
      }
  }
}

}  // namespace tessera
