// SPDX-License-Identifier: Apache-2.0
// Writes TensorBoard event files: TFRecords of Event protocol buffers, encoded by hand. Scalars,
// texts and histograms only.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "tasks/task/histogram.h"

namespace tessera {

class EventFile {
 public:
  // Creates a file in `directory` (summaries/<split>). TensorBoard ignores what other files of the
  // directory hold from `first_step` on: a resumed run writes those steps again.
  EventFile(const std::filesystem::path& directory, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalar(int64_t step, std::string_view tag, double value);
  void text(int64_t step, std::string_view tag, std::string_view markdown);
  void histogram(int64_t step, std::string_view tag, const Bins& bins);
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_event(int64_t step, std::string_view what);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

}  // namespace tessera
