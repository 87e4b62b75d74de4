// SPDX-License-Identifier: Apache-2.0
// What the launches of one step read and wrote, as a file or a pipe between two processes
// (docs/formats.md): a JSON line about the program, a JSON line for each launch, which the bytes of
// its arrays may follow, a JSON line with the sums of values, and one at the end with a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/replay/array_difference.h"

namespace tessera {

// The contents of a recording beside hashes: the elements that each launch wrote, or also those
// that it read. Each includes those before it.
enum class RecordedValues { kNone, kOutputs, kAll };

// The step and the program of a recording.
struct RecordingHeader {
  int64_t step = 0;
  std::string experiment;
  std::string build;   // "0.1.0 3f2a…" (the build stamp).
  std::string device;  // Its description.
  std::string mesh;
  std::string graph;         // The hash of the traced graph.
  std::string numerics;      // task.train.numerics.
  int64_t trained_from = 0;  // The steps after this one were trained before the recorded one.
  RecordedValues values = RecordedValues::kNone;
  std::vector<std::vector<std::string>> programs;  // LaunchList::identity() of each stage.
};

// Arrays that a launch read or wrote.
struct RecordedArrays {
  std::vector<std::string> hashes;             // array_hash() of each.
  std::vector<std::vector<std::byte>> values;  // Bytes of each array; empty: not recorded.
};

struct LaunchRecord {
  int64_t device = 0;
  int64_t launch = 0;  // ListedLaunch::number.
  RecordedArrays inputs, outputs;
};

struct RecordingEnd {
  int64_t launches = 0;
  double loss = 0.0, grad_norm = 0.0;
  std::map<std::string, ValueSum> sums;  // With mesh-invariant numerics.
};

class Json;
class RecordingOutput;  // A new file, or a pipe.

// Writes a recording. A regular file has a temporary name until finish().
class RecordingWriter {
 public:
  // Error if `path` exists and is neither a recording nor a pipe, or cannot be written.
  RecordingWriter(std::filesystem::path path, const RecordingHeader& header);
  ~RecordingWriter();                                      // Removes an unfinished file.
  RecordingWriter& operator=(RecordingWriter&&) = delete;  // Neither copied nor moved.

  void add(const LaunchRecord& record);                        // Any thread.
  void add_sums(const std::map<std::string, ValueSum>& sums);  // After the last launch.
  void finish(double loss, double grad_norm);

 private:
  void write_line(const std::string& line);
  void write(std::span<const std::byte> bytes);

  std::mutex mutex_;
  std::unique_ptr<RecordingOutput> output_;
  uint32_t checksum_ = 0;
  int64_t launches_ = 0;
};

// Fills a part of the bytes and returns how many; 0 at the end.
using ReadSome = std::function<size_t(std::span<std::byte>)>;

// Reads a recording from its begin to its end.
class RecordingReader {
 public:
  // `where` is for messages.
  RecordingReader(ReadSome read, std::string where);
  // A file, whose end is looked for at once. Error if it is not a recording or is cut short.
  static std::unique_ptr<RecordingReader> open(const std::filesystem::path& path);

  const RecordingHeader& header() const { return header_; }
  const std::string& where() const { return where_; }
  // The next launch, or false after the last. Error if the recording is damaged or cut short.
  bool next(LaunchRecord& record);
  const RecordingEnd& end() const { return end_; }  // After next() has returned false.

 private:
  std::string line();  // With its '\n'; Error at the end.
  void fill(std::span<std::byte> bytes);
  bool refill();
  void read_header();
  void read_values(RecordedArrays& arrays, const std::vector<int64_t>& bytes);
  std::map<std::string, ValueSum> sums_in(const Json& json) const;

  ReadSome read_;
  std::string where_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_of_buffer_ = 0;
  uint32_t checksum_ = 0;
  int64_t launches_ = 0;
  RecordingHeader header_;
  RecordingEnd end_;
};

}  // namespace tessera
