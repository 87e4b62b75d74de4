// SPDX-License-Identifier: Apache-2.0
#include "core/io/safetensors_writer.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/io/byte_file.h"
#include "core/io/file.h"
#include "core/io/json_line.h"

namespace tessera {
namespace {

constexpr size_t kAtATime = 1 << 18;  // Values converted and written together.

int64_t bytes_of(const SafetensorsTensor& tensor) {
  return tensor.elements() * safetensors_type_bytes(tensor.type);
}

// Eight bytes of length, then JSON, padded with blanks to a multiple of eight, as transformers
// writes it. It reads files of the metadata {"format": "pt"} only.
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

template <typename T>
void put(std::span<const float> values, std::vector<char>* bytes) {
  bytes->resize(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value(values[i]);
    std::memcpy(bytes->data() + i * sizeof(T), &value, sizeof(T));
  }
}

void convert(const SafetensorsTensor& tensor, std::span<const float> values,
             std::vector<char>* bytes) {
  using enum SafetensorsType;
  switch (tensor.type) {
    case kF64:
      return put<double>(values, bytes);
    case kF32:
      return put<float>(values, bytes);
    case kBF16:
      return put<BFloat16>(values, bytes);
    case kF16:
      for (const float value : values)
        if (std::isfinite(value) && std::isinf(static_cast<float>(Float16(value))))
          fail("'{}' has the value {}, but f16 reaches {} only; write f32 or bf16", tensor.name,
               value, Float16::kMax);
      return put<Float16>(values, bytes);
    default:
      CHECK(false, "'{}': weights are written in floating dtypes", tensor.name);
  }
}

// A file under a name of its own until it is whole.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path)
      : path_(std::move(path)), file_(ByteFile::create(temporary_beside(path_, "new"))) {}
  ~NewFile() {
    if (finished_) return;
    std::error_code ignored;
    std::filesystem::remove(file_.path(), ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const char> bytes) {
    file_.write_at(end_, std::as_bytes(bytes));
    end_ += std::ssize(bytes);
  }
  void finish() {
    file_.sync();
    std::filesystem::rename(file_.path(), path_);
    finished_ = true;
  }

 private:
  std::filesystem::path path_;
  ByteFile file_;  // Under a temporary name.
  int64_t end_ = 0;
  bool finished_ = false;
};

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
  std::unique_ptr<NewFile> file;  // Of ranges[number].
  size_t number = 0;
  size_t tensor = 0;  // Whose values come next,
  int64_t done = 0;   // after so many.
  std::vector<char> bytes;

  std::string name(size_t index) const {
    if (ranges.size() == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, ranges.size());
  }
  // Goes on to the tensor that the next value belongs to, and to its file.
  void advance();
  void write_index();
};

void SafetensorsWriter::Impl::advance() {
  while (number < ranges.size()) {
    const SafetensorsPlan::Range range = ranges[number];
    if (!file) {
      require_replaceable(directory / name(number));
      file = std::make_unique<NewFile>(directory / name(number));
      file->write(head_of(std::span(plan.tensors).subspan(range.first, range.last - range.first)));
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
  constexpr const char* kIndex = "model.safetensors.index.json";
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
    const size_t count =
        std::min({values.size(), kAtATime, static_cast<size_t>(tensor.elements() - impl_->done)});
    convert(tensor, values.first(count), &impl_->bytes);
    impl_->file->write(impl_->bytes);
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
