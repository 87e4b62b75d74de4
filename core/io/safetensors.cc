// SPDX-License-Identifier: Apache-2.0
#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMostAxes = 16;
constexpr int64_t kReadBytes = 1 << 20;  // At a time, where values are converted.

struct TypeRow {
  SafetensorsType type;
  std::string_view name;
  int64_t bytes;
};
using enum SafetensorsType;
constexpr std::array<TypeRow, 13> kTypes = {{{kF64, "F64", 8},
                                             {kF32, "F32", 4},
                                             {kBF16, "BF16", 2},
                                             {kF16, "F16", 2},
                                             {kI64, "I64", 8},
                                             {kI32, "I32", 4},
                                             {kI16, "I16", 2},
                                             {kI8, "I8", 1},
                                             {kU64, "U64", 8},
                                             {kU32, "U32", 4},
                                             {kU16, "U16", 2},
                                             {kU8, "U8", 1},
                                             {kBool, "BOOL", 1}}};

const TypeRow& row_of(SafetensorsType type) { return kTypes[static_cast<size_t>(type)]; }

SafetensorsType parse_type(const Json& json) {
  const std::string& name = json.as_string();
  std::vector<std::string> names;
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
    names.emplace_back(row.name);
  }
  fail("{} is '{}', expected one of {}{}", json.where(), name, fmt::join(names, ", "),
       did_you_mean(name, names));
}

// a·b of numbers that are not negative; nothing if it is beyond 64 bits.
bool multiply(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

int64_t parse_size(const Json& json) {
  const int64_t size = json.as_integer();
  if (size < 0) fail("{} is {}, expected 0 or more", json.where(), size);
  return size;
}

// A tensor with `begin` counted from the end of the header, and where it ends.
struct Parsed {
  SafetensorsTensor tensor;
  int64_t end = 0;
};

Parsed parse_tensor(const std::string& name, const Json& json) {
  Parsed parsed;
  parsed.tensor.name = name;
  parsed.tensor.type = parse_type(json.at("dtype"));
  const Json& shape = json.at("shape");
  if (shape.as_array().size() > kMostAxes)
    fail("{} has {} axes; at most {} are read", shape.where(), shape.as_array().size(), kMostAxes);
  int64_t bytes = row_of(parsed.tensor.type).bytes;
  for (const Json& size : shape.as_array()) {
    parsed.tensor.shape.push_back(parse_size(size));
    if (!multiply(bytes, parsed.tensor.shape.back(), &bytes))
      fail("{} has more bytes than 64 bits count", shape.where());
  }
  const Json& offsets = json.at("data_offsets");
  if (offsets.as_array().size() != 2)
    fail("{} has {} numbers, expected a begin and an end", offsets.where(),
         offsets.as_array().size());
  parsed.tensor.begin = parse_size(offsets.as_array()[0]);
  parsed.end = parse_size(offsets.as_array()[1]);
  if (parsed.end < parsed.tensor.begin)
    fail("{} ends at {}, before it begins at {}", offsets.where(), parsed.end, parsed.tensor.begin);
  if (parsed.end - parsed.tensor.begin != bytes)
    fail("{} span {} bytes, but {} has {}", offsets.where(), parsed.end - parsed.tensor.begin,
         parsed.tensor.text(), bytes);
  return parsed;
}

// Whether the tensors, in the order of their bytes, are all the data there is.
void check_places(const std::vector<Parsed>& tensors, int64_t data_bytes,
                  const std::string& where) {
  int64_t end = 0;
  std::string before = "the header";
  for (const Parsed& each : tensors) {
    if (each.tensor.begin < end)
      fail("{}: tensor '{}' begins at byte {} of the data and overlaps '{}', which ends at {}",
           where, each.tensor.name, each.tensor.begin, before, end);
    if (each.tensor.begin > end)
      fail("{}: {} bytes of the data between {} and '{}' belong to no tensor", where,
           each.tensor.begin - end, before, each.tensor.name);
    end = each.end;
    before = each.tensor.name;
  }
  if (end > data_bytes)
    fail("{}: it is cut short: tensors take {} bytes, up to '{}', but {} are there", where, end,
         before, data_bytes);
  if (end < data_bytes)
    fail("{}: {} bytes after the last tensor belong to none", where, data_bytes - end);
}

template <typename T>
void widen(const char* bytes, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
}

void convert(SafetensorsType type, const char* bytes, std::span<float> values) {
  switch (type) {
    case kF64:
      return widen<double>(bytes, values);
    case kF32:
      std::memcpy(values.data(), bytes, values.size_bytes());
      return;
    case kBF16:
      return widen<BFloat16>(bytes, values);
    case kF16:
      return widen<Float16>(bytes, values);
    case kI64:
      return widen<int64_t>(bytes, values);
    case kI32:
      return widen<int32_t>(bytes, values);
    case kI16:
      return widen<int16_t>(bytes, values);
    case kI8:
      return widen<int8_t>(bytes, values);
    case kU64:
      return widen<uint64_t>(bytes, values);
    case kU32:
      return widen<uint32_t>(bytes, values);
    case kU16:
      return widen<uint16_t>(bytes, values);
    case kU8:
    case kBool:
      return widen<uint8_t>(bytes, values);
  }
}

}  // namespace

std::string_view safetensors_type_name(SafetensorsType type) { return row_of(type).name; }
int64_t safetensors_type_bytes(SafetensorsType type) { return row_of(type).bytes; }

int64_t SafetensorsTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string SafetensorsTensor::text() const {
  return fmt::format("{}[{}]", safetensors_type_name(type), fmt::join(shape, " "));
}

int64_t safetensors_head_bytes(std::string_view first_bytes, int64_t file_bytes,
                               const std::string& where) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes)
    fail("{}: {} bytes are no safetensors file, whose first 8 tell the length of its header", where,
         file_bytes);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = (length << 8) | static_cast<unsigned char>(first_bytes[i]);
  if (length > static_cast<uint64_t>(kLongestSafetensorsHeader))
    fail("{}: its header is said to have {} bytes; at most {} are read. Is it a safetensors file?",
         where, length, kLongestSafetensorsHeader);
  const int64_t head = kLengthBytes + static_cast<int64_t>(length);
  if (head > file_bytes)
    fail("{}: it is cut short: its header is said to have {} bytes, but the file has {}", where,
         length, file_bytes);
  return head;
}

SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes,
                                           const std::string& where) {
  CHECK(static_cast<int64_t>(head.size()) == safetensors_head_bytes(head, file_bytes, where));
  const Json json = parse_json(head.substr(kLengthBytes), where);
  SafetensorsHeader header;
  std::vector<Parsed> tensors;
  std::set<std::string> names;
  for (const auto& [name, value] : json.as_object()) {
    if (!names.insert(name).second) fail("{}: '{}' is in the header twice", where, name);
    if (name == "__metadata__") {
      for (const auto& [key, text] : value.as_object()) header.metadata[key] = text.as_string();
    } else {
      tensors.push_back(parse_tensor(name, value));
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const Parsed& a, const Parsed& b) {
    return std::pair(a.tensor.begin, a.end) < std::pair(b.tensor.begin, b.end);
  });
  const auto head_bytes = static_cast<int64_t>(head.size());
  check_places(tensors, file_bytes - head_bytes, where);
  for (Parsed& each : tensors) {
    each.tensor.begin += head_bytes;
    header.tensors.push_back(std::move(each.tensor));
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(ByteFile::open(path)) {
  const int64_t file_bytes = file_.size();
  std::string head(static_cast<size_t>(std::min(file_bytes, kLengthBytes)), '\0');
  file_.read_at(0, std::as_writable_bytes(std::span(head)));
  const int64_t head_bytes = safetensors_head_bytes(head, file_bytes, path.string());
  head.resize(static_cast<size_t>(head_bytes));
  file_.read_at(0, std::as_writable_bytes(std::span(head)));
  header_ = parse_safetensors_header(head, file_bytes, path.string());
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, int64_t first,
                           std::span<float> values) const {
  CHECK(first >= 0 && first + static_cast<int64_t>(values.size()) <= tensor.elements(),
        "'{}': elements {} and {} more", tensor.name, first, values.size());
  const int64_t size = safetensors_type_bytes(tensor.type);
  int64_t begin = tensor.begin + first * size;
  if (tensor.type == kF32) {
    file_.read_at(begin, std::as_writable_bytes(values));
    return;
  }
  std::vector<char> bytes(
      std::min(static_cast<size_t>(kReadBytes), values.size() * static_cast<size_t>(size)));
  while (!values.empty()) {
    const size_t count = std::min(values.size(), static_cast<size_t>(kReadBytes / size));
    const std::span<char> part = std::span(bytes).first(count * static_cast<size_t>(size));
    file_.read_at(begin, std::as_writable_bytes(part));
    convert(tensor.type, part.data(), values.first(count));
    values = values.subspan(count);
    begin += static_cast<int64_t>(part.size());
  }
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& where) {
  std::map<std::string, std::string> file_of;
  const Json json = parse_json(text, where);
  for (const auto& [tensor, file] : json.at("weight_map").as_object()) {
    const std::string& name = file.as_string();
    // Another folder's file is none of this model's.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      fail("{} is '{}', expected the name of a file beside the index", file.where(), name);
    if (!file_of.emplace(tensor, name).second) fail("{}: weight_map has '{}' twice", where, tensor);
  }
  return file_of;
}

SafetensorsModel::SafetensorsModel(const std::filesystem::path& directory) : directory_(directory) {
  constexpr const char* kWhole = "model.safetensors";
  constexpr const char* kIndex = "model.safetensors.index.json";
  if (std::filesystem::exists(directory / kWhole)) {
    add_file(kWhole);
    return;
  }
  const std::filesystem::path index = directory / kIndex;
  if (!std::filesystem::exists(index))
    fail("{} has neither {} nor {}", directory.string(), kWhole, kIndex);
  const auto file_of = parse_safetensors_index(read_file(index), index.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : file_of) files.insert(file);
  for (const std::string& file : files) add_file(file);
  for (const auto& [tensor, file] : file_of) {
    const auto place = places_.find(tensor);
    if (place == places_.end() || files_[place->second.file].path().filename() != file)
      fail("{}: '{}' is said to be in {}, which does not have it", index.string(), tensor, file);
  }
}

void SafetensorsModel::add_file(const std::string& name) {
  files_.emplace_back(directory_ / name);
  const std::vector<SafetensorsTensor>& tensors = files_.back().header().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [place, is_new] = places_.emplace(tensors[i].name, Place{files_.size() - 1, i});
    if (!is_new)
      fail("{}: tensor '{}' is in {} and in {}", directory_.string(), tensors[i].name,
           files_[place->second.file].path().filename().string(), name);
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const SafetensorsTensor* SafetensorsModel::find(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  return &files_[found->second.file].header().tensors[found->second.tensor];
}

void SafetensorsModel::read(const std::string& name, int64_t first, std::span<float> values) const {
  const auto found = places_.find(name);
  CHECK(found != places_.end(), "no tensor '{}'", name);
  const SafetensorsFile& file = files_[found->second.file];
  file.read(file.header().tensors[found->second.tensor], first, values);
}

}  // namespace tessera
