// SPDX-License-Identifier: Apache-2.0
#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include <boost/mp11/algorithm.hpp>
#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/io/json.h"

namespace tessera {
namespace {

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kLengthBytes = 8;
constexpr size_t kMostAxes = 16;
constexpr int64_t kReadBytes = 1 << 20;  // Bytes read and converted at a time.

// Sign, 4 bits of exponent, 3 of fraction; no infinities, all bits set: NaN.
struct Float8E4M3 {
  uint8_t bits = 0;
  explicit operator float() const {
    const uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    uint32_t word = (magnitude << 20) + (120u << 23);
    if (magnitude < 8) word = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
    if (magnitude == 0x7f) word = 0x7fc00000u;
    return std::bit_cast<float>(sign | word);
  }
};

using enum SafetensorsType;
// Indexed by SafetensorsType: the name in headers, and the C++ type of an element.
constexpr std::array<std::string_view, 14> kTypeNames = {"F64", "F32", "BF16", "F16",    "I64",
                                                         "I32", "I16", "I8",   "U64",    "U32",
                                                         "U16", "U8",  "BOOL", "F8_E4M3"};
using ElementTypes = std::tuple<double, float, BFloat16, Float16, int64_t, int32_t, int16_t, int8_t,
                                uint64_t, uint32_t, uint16_t, uint8_t, uint8_t, Float8E4M3>;

// Calls visit(T{}) for the C++ type of the elements.
template <typename Visit>
void with_element(SafetensorsType type, const Visit& visit) {
  boost::mp11::mp_with_index<kTypeNames.size()>(static_cast<size_t>(type), [&](auto index) {
    visit(std::tuple_element_t<index, ElementTypes>{});
  });
}

SafetensorsType parse_type(const Json& json) {
  const std::string& name = json.as_string();
  const auto found = std::ranges::find(kTypeNames, name);
  if (found != kTypeNames.end()) return static_cast<SafetensorsType>(found - kTypeNames.begin());
  fail("{} is '{}', expected one of {}{}", json.where(), name, fmt::join(kTypeNames, ", "),
       did_you_mean(name, {kTypeNames.begin(), kTypeNames.end()}));
}

int64_t parse_size(const Json& json) {
  const int64_t size = json.as_integer();
  if (size < 0) fail("{} is {}, expected 0 or more", json.where(), size);
  return size;
}

// A tensor with `begin` and `end` relative to the end of the header.
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
  int64_t bytes = safetensors_type_bytes(parsed.tensor.type);
  for (const Json& size : shape.as_array()) {
    parsed.tensor.shape.push_back(parse_size(size));
    if (__builtin_mul_overflow(bytes, parsed.tensor.shape.back(), &bytes))
      fail("{}: the number of bytes overflows 64 bits", shape.where());
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

// Checks that the tensors, sorted by their bytes, cover the data without gap or overlap.
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
    fail("{}: the file is truncated: the tensors up to '{}' take {} bytes, but {} are present",
         where, before, end, data_bytes);
  if (end < data_bytes)
    fail("{}: {} bytes after the last tensor belong to no tensor", where, data_bytes - end);
}

void convert_from(SafetensorsType type, const char* bytes, std::span<float> values) {
  with_element(type, [&](auto element) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, bytes + i * sizeof(element), sizeof(element));
      values[i] = static_cast<float>(element);
    }
  });
}

}  // namespace

std::string_view safetensors_type_name(SafetensorsType type) {
  return kTypeNames[static_cast<size_t>(type)];
}

int64_t safetensors_type_bytes(SafetensorsType type) {
  int64_t bytes = 0;
  with_element(type, [&](auto element) { bytes = sizeof(element); });
  return bytes;
}

std::string SafetensorsTensor::text() const {
  return fmt::format("{}[{}]", safetensors_type_name(type), fmt::join(shape, " "));
}

int64_t safetensors_head_bytes(std::string_view first_bytes, int64_t file_bytes,
                               const std::string& where) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes)
    fail(
        "{}: {} bytes are not a safetensors file, whose first 8 bytes hold the length of its "
        "header",
        where, file_bytes);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = (length << 8) | static_cast<unsigned char>(first_bytes[i]);
  if (length > static_cast<uint64_t>(kLongestSafetensorsHeader))
    fail("{}: the header length is {} bytes, expected at most {}; is this a safetensors file?",
         where, length, kLongestSafetensorsHeader);
  const int64_t head = kLengthBytes + static_cast<int64_t>(length);
  if (head > file_bytes)
    fail("{}: the file is truncated: the header length is {} bytes, but the file has {}", where,
         length, file_bytes);
  return head;
}

SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes,
                                           const std::string& where) {
  CHECK(std::ssize(head) == safetensors_head_bytes(head, file_bytes, where));
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
  std::ranges::stable_sort(tensors, [](const Parsed& a, const Parsed& b) {
    return std::pair(a.tensor.begin, a.end) < std::pair(b.tensor.begin, b.end);
  });
  const auto head_bytes = std::ssize(head);
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
  CHECK(first >= 0 && first + std::ssize(values) <= tensor.elements(),
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
    convert_from(tensor.type, part.data(), values.first(count));
    values = values.subspan(count);
    begin += std::ssize(part);
  }
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& where) {
  std::map<std::string, std::string> file_of;
  const Json json = parse_json(text, where);
  for (const auto& [tensor, file] : json.at("weight_map").as_object()) {
    const std::string& name = file.as_string();
    // Names with a directory could reach files outside of the model.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      fail("{} is '{}', expected the name of a file beside the index", file.where(), name);
    if (!file_of.emplace(tensor, name).second) fail("{}: weight_map has '{}' twice", where, tensor);
  }
  return file_of;
}

SafetensorsModel::SafetensorsModel(const std::filesystem::path& directory) : directory_(directory) {
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
      fail("{}: '{}' is listed in {}, which does not contain it", index.string(), tensor, file);
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

namespace {

constexpr size_t kValuesAtOnce = 1 << 18;  // Converted and written at a time.

int64_t bytes_of(const SafetensorsTensor& tensor) {
  return tensor.elements() * safetensors_type_bytes(tensor.type);
}

// Returns eight bytes of length, then JSON, padded with blanks to a multiple of eight, as
// transformers writes it. transformers reads only files with the metadata {"format": "pt"}.
std::string head_of(std::span<const SafetensorsTensor> tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t begin = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_quoted(tensor.name), safetensors_type_name(tensor.type),
                        fmt::join(tensor.shape, ","), begin, begin + bytes_of(tensor));
    begin += bytes_of(tensor);
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) head += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return head + json;
}

void convert_to(const SafetensorsTensor& tensor, std::span<const float> values,
                std::vector<char>* bytes) {
  CHECK(tensor.type <= kF16, "'{}': weights are written in floating dtypes", tensor.name);
  for (const float value : values)
    if (tensor.type == kF16 && std::isfinite(value) && std::isinf(float(Float16(value))))
      fail("'{}' has the value {}, beyond the f16 maximum of {}; write f32 or bf16", tensor.name,
           value, Float16::kMax);
  with_element(tensor.type, [&](auto element) {
    bytes->resize(values.size() * sizeof(element));
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (requires { decltype(element)(0.0f); })
        element = static_cast<decltype(element)>(values[i]);
      std::memcpy(bytes->data() + i * sizeof(element), &element, sizeof(element));
    }
  });
}

}  // namespace

std::vector<SafetensorsPlan::Range> SafetensorsPlan::files() const {
  std::vector<Range> files = {{0, 0}};
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t more = bytes_of(tensors[i]);
    if (files.back().last > files.back().first && bytes + more > max_file_bytes) {
      files.push_back({i, i});
      bytes = 0;
    }
    files.back().last = i + 1;
    bytes += more;
  }
  return files;
}

struct SafetensorsWriter::Impl {
  std::filesystem::path directory;
  SafetensorsPlan plan;
  std::vector<SafetensorsPlan::Range> ranges;
  std::vector<std::string> written;
  std::unique_ptr<NewFile> file;  // File of ranges[number].
  size_t number = 0;
  size_t tensor = 0;  // The tensor of the next value,
  int64_t done = 0;   // of which so many are written.
  std::vector<char> bytes;

  std::string name(size_t index) const {
    if (ranges.size() == 1) return kWhole;
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, ranges.size());
  }
  // Moves to the tensor of the next value, and to its file.
  void advance();
  void write_index();
};

void SafetensorsWriter::Impl::advance() {
  while (number < ranges.size()) {
    const SafetensorsPlan::Range range = ranges[number];
    if (!file) {
      file = std::make_unique<NewFile>(directory / name(number));
      const std::string head =
          head_of(std::span(plan.tensors).subspan(range.first, range.last - range.first));
      file->write(std::as_bytes(std::span(head)));
    }
    for (; tensor < range.last; ++tensor, done = 0)
      if (done < plan.tensors[tensor].elements()) return;
    file->finish();
    file.reset();
    written.push_back(name(number++));
  }
}

void SafetensorsWriter::Impl::write_index() {
  int64_t total = 0;
  std::vector<std::string> lines;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t j = ranges[i].first; j < ranges[i].last; ++j) {
      total += bytes_of(plan.tensors[j]);
      lines.push_back(
          fmt::format("    {}: {}", json_quoted(plan.tensors[j].name), json_quoted(name(i))));
    }
  }
  write_file_atomically(directory / kIndex,
                        fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  "
                                    "\"weight_map\": {{\n{}\n  }}\n}}\n",
                                    total, fmt::join(lines, ",\n")));
  written.emplace_back(kIndex);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& directory, SafetensorsPlan plan)
    : impl_(std::make_unique<Impl>()) {
  impl_->directory = directory;
  impl_->ranges = plan.files();
  impl_->plan = std::move(plan);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const float> values) {
  while (!values.empty()) {
    impl_->advance();
    CHECK(impl_->file != nullptr, "more values than tensors have");
    const SafetensorsTensor& tensor = impl_->plan.tensors[impl_->tensor];
    const size_t count = std::min(
        {values.size(), kValuesAtOnce, static_cast<size_t>(tensor.elements() - impl_->done)});
    convert_to(tensor, values.first(count), &impl_->bytes);
    impl_->file->write(std::as_bytes(std::span(impl_->bytes)));
    impl_->done += static_cast<int64_t>(count);
    values = values.subspan(count);
  }
}

void SafetensorsWriter::finish() {
  impl_->advance();
  CHECK(impl_->file == nullptr, "tensor '{}' lacks values",
        impl_->plan.tensors[impl_->tensor].name);
  if (impl_->ranges.size() > 1) impl_->write_index();
  sync_directory(impl_->directory);
}

std::vector<std::string> SafetensorsWriter::files() const { return impl_->written; }

}  // namespace tessera
