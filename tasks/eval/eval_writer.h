// SPDX-License-Identifier: Apache-2.0
// What --mode=eval leaves in a run's directory: eval_out/<dataset>.jsonl and TensorBoard summaries
// (docs/formats.md). Several evaluators may add to the same files, beside the job that trains; none
// of them touches what is the job's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tasks/logging/event_file.h"

namespace tessera {

class EvalWriter {
 public:
  explicit EvalWriter(std::filesystem::path run_directory);

  // The metrics of an EvalReport, after `step` steps.
  void add(int64_t step, const std::map<std::string, double>& metrics);
  // Steps of which the dataset's file has a line.
  std::set<int64_t> steps(const std::string& dataset) const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
  std::map<std::string, std::unique_ptr<EventFile>> events_;  // By split.
};

// A file of lines to which several processes add at any time, and may be killed over it.

// Adds a line, whole. What a writer that was killed left of one is cut off first. The file is made,
// and its directory; it is locked (flock) only while the line is written.
void append_shared_line(const std::filesystem::path& path, std::string_view line);

}  // namespace tessera
