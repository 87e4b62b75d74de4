// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/recording.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/log/jsonl_writer.h"

namespace tessera {

class RecordingOutput {
 public:
  virtual ~RecordingOutput() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void finish() {}
};

namespace {

namespace fs = std::filesystem;

constexpr int64_t kRecordingVersion = 2;
constexpr std::string_view kFirstKey = "{\"recording\": ";
constexpr size_t kReadBytes = 1 << 16;
constexpr size_t kMostOfLine = size_t{1} << 30;

std::vector<std::string> texts_in(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list.as_array()) texts.push_back(item.as_string());
  return texts;
}

std::vector<int64_t> numbers_in(const Json& list) {
  std::vector<int64_t> numbers;
  for (const Json& item : list.as_array()) numbers.push_back(item.as_integer());
  return numbers;
}

uint64_t hexadecimal_in(const std::string& text, const std::string& where) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size())
    fail("{} is damaged: '{}' is not a sum", where, text);
  return number;
}

double number_or_nan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.as_number();
}

// The checksum of all lines before the last and of the results in the last line.
uint32_t checksum_with_results(uint32_t lines, double loss, double grad_norm) {
  const std::string results = json_object({{"loss", loss}, {"grad_norm", grad_norm}});
  return crc32c(std::as_bytes(std::span(results)), lines);
}

std::string header_line(const RecordingHeader& header) {
  const auto names = [](const std::vector<std::string>& program) {
    return json_list(program, json_quoted);
  };
  return json_object({{"recording", kRecordingVersion},
                      {"step", header.step},
                      {"experiment", header.experiment},
                      {"build", header.build},
                      {"device", header.device},
                      {"mesh", header.mesh},
                      {"graph", header.graph},
                      {"numerics", header.numerics},
                      {"trained_from", header.trained_from},
                      {"values", enum_name(header.values)},
                      {"programs", RawJson{json_list(header.programs, names)}}});
}

class FileOutput final : public RecordingOutput {
 public:
  explicit FileOutput(const fs::path& path) : file_(path) {}
  void write(std::span<const std::byte> bytes) override { file_.write(bytes); }
  void finish() override { file_.finish(); }

 private:
  NewFile file_;
};

class PipeOutput final : public RecordingOutput {
 public:
  explicit PipeOutput(const fs::path& path)
      : path_(path), pipe_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
    if (!pipe_.is_open()) fail("cannot open {}: {}", path.string(), std::strerror(errno));
  }
  void write(std::span<const std::byte> bytes) override {
    write_whole(pipe_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path_);
  }

 private:
  fs::path path_;
  FileDescriptor pipe_;
};

}  // namespace

RecordingWriter::RecordingWriter(fs::path path, const RecordingHeader& header) {
  if (fs::is_fifo(path)) {
    output_ = std::make_unique<PipeOutput>(path);
  } else {
    require_same_kind(path, kFirstKey, "a recording of --mode=replay");
    output_ = std::make_unique<FileOutput>(path);
  }
  write_line(header_line(header));
}

RecordingWriter::~RecordingWriter() = default;

void RecordingWriter::write(std::span<const std::byte> bytes) {
  checksum_ = crc32c(bytes, checksum_);
  output_->write(bytes);
}

void RecordingWriter::write_line(const std::string& line) {
  const std::string ended = line + "\n";
  write(std::as_bytes(std::span(ended)));
}

void RecordingWriter::add(const LaunchRecord& record) {
  JsonLine line;
  line.add("device", record.device).add("launch", record.launch);
  line.add_raw("inputs", json_list(record.inputs.hashes, json_quoted));
  line.add_raw("outputs", json_list(record.outputs.hashes, json_quoted));
  line.add_raw("input_bytes", json_list(record.inputs.values, &std::vector<std::byte>::size));
  line.add_raw("output_bytes", json_list(record.outputs.values, &std::vector<std::byte>::size));
  const std::lock_guard lock(mutex_);
  write_line(line.text());
  for (const RecordedArrays* arrays : {&record.inputs, &record.outputs})
    for (const std::vector<std::byte>& array : arrays->values) write(array);
  ++launches_;
}

void RecordingWriter::add_sums(const std::map<std::string, ValueSum>& sums) {
  std::vector<std::string> names;
  std::vector<uint64_t> elements;
  std::vector<std::string> hashes;
  for (const auto& [name, sum] : sums) {
    names.push_back(name);
    elements.push_back(sum.elements);
    hashes.push_back(fmt::format("{:016x}", sum.sum));
  }
  write_line(json_object({{"values", RawJson{json_list(names, json_quoted)}},
                          {"elements", RawJson{json_list(elements)}},
                          {"sums", RawJson{json_list(hashes, json_quoted)}}}));
}

void RecordingWriter::finish(double loss, double grad_norm) {
  const int64_t checksum = checksum_with_results(checksum_, loss, grad_norm);
  write_line(json_object(
      {{"end", launches_}, {"loss", loss}, {"grad_norm", grad_norm}, {"checksum", checksum}}));
  output_->finish();
}

RecordingReader::RecordingReader(ReadSome read, std::string where)
    : read_(std::move(read)), where_(std::move(where)), buffer_(kReadBytes) {
  read_header();
}

// A recording ends with a line that is much shorter than this.
std::unique_ptr<RecordingReader> RecordingReader::open(const fs::path& path) {
  constexpr int64_t kLastBytes = 512;
  auto file = std::make_shared<ByteFile>(ByteFile::open(path));
  const int64_t size = file->size(), from = std::max<int64_t>(0, size - kLastBytes);
  std::string last(static_cast<size_t>(size - from), '\0');
  file->read_at(from, std::as_writable_bytes(std::span(last)));
  auto reader = std::make_unique<RecordingReader>(
      [file, at = int64_t{0}](std::span<std::byte> bytes) mutable {
        const size_t read = file->read_some_at(at, bytes);
        at += static_cast<int64_t>(read);
        return read;
      },
      path.string());
  const size_t end = last.rfind("{\"end\": ");
  if (!last.ends_with("}\n") || end == std::string::npos)
    fail("{} is cut short: its last line is missing; record it again", path.string());
  return reader;
}

bool RecordingReader::refill() {
  begin_ = 0;
  end_of_buffer_ = read_(buffer_);
  return end_of_buffer_ > 0;
}

std::string RecordingReader::line() {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    if (begin_ == end_of_buffer_ && !refill())
      fail("{} is cut short: it ends {}; record it again", where_,
           launches_ == 0 ? std::string("before the first launch")
                          : fmt::format("after {} launches, without its last line", launches_));
    const auto first = buffer_.begin() + static_cast<ptrdiff_t>(begin_);
    const auto last = buffer_.begin() + static_cast<ptrdiff_t>(end_of_buffer_);
    auto end = std::find(first, last, std::byte{'\n'});
    if (end != last) ++end;
    line.append(reinterpret_cast<const char*>(&*first), static_cast<size_t>(end - first));
    begin_ += static_cast<size_t>(end - first);
    if (line.size() > kMostOfLine) fail("{} is not a recording of --mode=replay", where_);
  }
  return line;
}

void RecordingReader::fill(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (begin_ == end_of_buffer_ && !refill())
      fail("{} is cut short: it ends within launch {}; record it again", where_, launches_ + 1);
    const size_t count = std::min(bytes.size(), end_of_buffer_ - begin_);
    std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(begin_), count, bytes.begin());
    begin_ += count;
    bytes = bytes.subspan(count);
  }
}

void RecordingReader::read_header() {
  std::string begin(kFirstKey.size(), '\0');
  const bool is_recording = [&] {
    if (!refill() || end_of_buffer_ < begin.size()) return false;
    std::memcpy(begin.data(), buffer_.data(), begin.size());
    return begin == kFirstKey;
  }();
  if (!is_recording) fail("{} is not a recording of --mode=replay", where_);
  const std::string text = line();
  checksum_ = crc32c(std::as_bytes(std::span(text)));
  const Json json = parse_json(text, where_);
  if (const int64_t version = json.at("recording").as_integer(); version != kRecordingVersion)
    fail("{} has version {}, expected {}; record it again with this build", where_, version,
         kRecordingVersion);
  header_.step = json.at("step").as_integer();
  header_.experiment = json.at("experiment").as_string();
  header_.build = json.at("build").as_string();
  header_.device = json.at("device").as_string();
  header_.mesh = json.at("mesh").as_string();
  header_.graph = json.at("graph").as_string();
  header_.numerics = json.at("numerics").as_string();
  header_.trained_from = json.at("trained_from").as_integer();
  const std::string& values = json.at("values").as_string();
  const auto kinds = enum_names(RecordedValues{});
  const auto named = std::ranges::find(kinds, values, &EnumName<RecordedValues>::name);
  if (named == kinds.end()) fail("{}: unknown \"values\" '{}'", where_, values);
  header_.values = named->value;
  for (const Json& program : json.at("programs").as_array())
    header_.programs.push_back(texts_in(program));
}

// The hashes say whether the bytes are damaged.
void RecordingReader::read_values(RecordedArrays& arrays, const std::vector<int64_t>& bytes) {
  constexpr int64_t kMost = int64_t{1} << 40;
  arrays.values.clear();
  if (!bytes.empty() && bytes.size() != arrays.hashes.size())
    fail("{} is damaged: launch {} has {} arrays and {} hashes", where_, launches_ + 1,
         bytes.size(), arrays.hashes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] < 0 || bytes[i] > kMost)
      fail("{} is damaged: an array of {} bytes", where_, bytes[i]);
    std::vector<std::byte>& array = arrays.values.emplace_back();
    constexpr int64_t kPiece = int64_t{1} << 24;  // A wrong size ends at the end of the file.
    for (int64_t at = 0; at < bytes[i]; at += kPiece) {
      const auto piece = static_cast<size_t>(std::min(kPiece, bytes[i] - at));
      array.resize(array.size() + piece);
      fill(std::span(array).last(piece));
    }
    checksum_ = crc32c(array, checksum_);
    if (array_hash(array) != arrays.hashes[i])
      fail("{} is damaged: the bytes of launch {} do not have their hash", where_, launches_ + 1);
  }
}

std::map<std::string, ValueSum> RecordingReader::sums_in(const Json& json) const {
  const std::vector<std::string> names = texts_in(json.at("values"));
  const std::vector<std::string> hashes = texts_in(json.at("sums"));
  const std::vector<int64_t> elements = numbers_in(json.at("elements"));
  if (hashes.size() != names.size() || elements.size() != names.size())
    fail("{} is damaged: {} values and {} sums", where_, names.size(), hashes.size());
  std::map<std::string, ValueSum> sums;
  for (size_t i = 0; i < names.size(); ++i)
    sums[names[i]] = {static_cast<uint64_t>(elements[i]), hexadecimal_in(hashes[i], where_)};
  return sums;
}

bool RecordingReader::next(LaunchRecord& record) {
  std::string text = line();
  Json json = parse_json(text, where_);
  if (json.find("sums") != nullptr) {
    checksum_ = crc32c(std::as_bytes(std::span(text)), checksum_);
    end_.sums = sums_in(json);
    text = line();
    json = parse_json(text, where_);
  }
  if (json.find("end") != nullptr) {
    end_.launches = json.at("end").as_integer();
    end_.loss = number_or_nan(json.at("loss"));
    end_.grad_norm = number_or_nan(json.at("grad_norm"));
    const int64_t checksum = checksum_with_results(checksum_, end_.loss, end_.grad_norm);
    if (end_.launches != launches_ || json.at("checksum").as_integer() != checksum)
      fail("{} is damaged: its checksum is wrong; record it again", where_);
    return false;
  }
  checksum_ = crc32c(std::as_bytes(std::span(text)), checksum_);
  record.device = json.at("device").as_integer();
  record.launch = json.at("launch").as_integer();
  record.inputs.hashes = texts_in(json.at("inputs"));
  record.outputs.hashes = texts_in(json.at("outputs"));
  read_values(record.inputs, numbers_in(json.at("input_bytes")));
  read_values(record.outputs, numbers_in(json.at("output_bytes")));
  ++launches_;
  return true;
}

}  // namespace tessera
