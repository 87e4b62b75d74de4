// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/event_file.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace tessera {
namespace {

// Protocol buffers' wire format: a key (field number and wire type), then the value.
enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <typename T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7f));
  return bytes + static_cast<char>(value);
}

std::string key(int field, WireType type) {
  return varint(static_cast<uint64_t>(field << 3 | type));
}

std::string integer_field(int field, int64_t value) {
  return key(field, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string float_field(int field, float value) {
  return key(field, kFixed32) + little_endian(value);
}
std::string double_field(int field, double value) {
  return key(field, kFixed64) + little_endian(value);
}
std::string bytes_field(int field, std::string_view bytes) {
  return key(field, kLengthDelimited) + varint(bytes.size()) + std::string(bytes);
}

// Field numbers of tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1;
constexpr int64_t kSessionStart = 1;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1, kValueSimple = 2, kValueHistogram = 5, kValueTensor = 8,
              kValueMetadata = 9;
constexpr int kMetadataPluginData = 1, kPluginName = 1;
constexpr int kTensorDtype = 1, kTensorStringValue = 8;
constexpr int64_t kDtypeString = 7;
constexpr int kHistogramMin = 1, kHistogramMax = 2, kHistogramNum = 3, kHistogramSum = 4,
              kHistogramSumOfSquares = 5, kHistogramBucketLimit = 6, kHistogramBucket = 7;

std::string doubles_field(int field, const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) bytes += little_endian(value);
  return bytes_field(field, bytes);
}

// The moments are those of the middles of the bins.
std::string histogram_proto(const Bins& bins) {
  double number = 0.0, sum = 0.0, squares = 0.0;
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    const double middle = 0.5 * (bins.edges[i] + bins.edges[i + 1]);
    number += bins.counts[i];
    sum += bins.counts[i] * middle;
    squares += bins.counts[i] * middle * middle;
  }
  return double_field(kHistogramMin, bins.edges.front()) +
         double_field(kHistogramMax, bins.edges.back()) + double_field(kHistogramNum, number) +
         double_field(kHistogramSum, sum) + double_field(kHistogramSumOfSquares, squares) +
         doubles_field(kHistogramBucketLimit, {bins.edges.begin() + 1, bins.edges.end()}) +
         doubles_field(kHistogramBucket, bins.counts);
}

// TFRecord: length, its checksum, the bytes, their checksum.
std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian<uint64_t>(bytes.size());
  return length + little_endian(masked_crc32c(length)) + std::string(bytes) +
         little_endian(masked_crc32c(bytes));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Unique among the files of all processes; TensorBoard reads them in order of their names.
std::string file_name() {
  static std::atomic<int> count{0};
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(wall_time()), host,
                     ::getpid(), count++);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory, int64_t first_step) {
  std::filesystem::create_directories(directory);
  path_ = directory / file_name();
  file_ = std::fopen(path_.c_str(), "wbex");
  if (file_ == nullptr) fail("{}: cannot create: {}", path_.string(), std::strerror(errno));
  write_event(0, bytes_field(kEventFileVersion, "brain.Event:2"));
  if (first_step > 0)
    write_event(first_step,
                bytes_field(kEventSessionLog, integer_field(kSessionLogStatus, kSessionStart)));
  flush();
}

EventFile::~EventFile() { std::fclose(file_); }

void EventFile::scalar(int64_t step, std::string_view tag, double value) {
  const std::string entry =
      bytes_field(kValueTag, tag) + float_field(kValueSimple, static_cast<float>(value));
  write_event(step, bytes_field(kEventSummary, bytes_field(kSummaryValue, entry)));
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view markdown) {
  const std::string tensor =
      integer_field(kTensorDtype, kDtypeString) + bytes_field(kTensorStringValue, markdown);
  const std::string metadata = bytes_field(kMetadataPluginData, bytes_field(kPluginName, "text"));
  const std::string entry = bytes_field(kValueTag, tag) + bytes_field(kValueTensor, tensor) +
                            bytes_field(kValueMetadata, metadata);
  write_event(step, bytes_field(kEventSummary, bytes_field(kSummaryValue, entry)));
}

void EventFile::histogram(int64_t step, std::string_view tag, const Bins& bins) {
  if (bins.counts.empty()) return;
  const std::string entry =
      bytes_field(kValueTag, tag) + bytes_field(kValueHistogram, histogram_proto(bins));
  write_event(step, bytes_field(kEventSummary, bytes_field(kSummaryValue, entry)));
}

void EventFile::write_event(int64_t step, std::string_view what) {
  const std::string bytes = tf_record(double_field(kEventWallTime, wall_time()) +
                                      integer_field(kEventStep, step) + std::string(what));
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    fail("{}: cannot write: {}", path_.string(), std::strerror(errno));
}

void EventFile::flush() {
  if (std::fflush(file_) != 0) fail("{}: cannot write: {}", path_.string(), std::strerror(errno));
}

}  // namespace tessera
