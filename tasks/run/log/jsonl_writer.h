// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: a file of JSON objects, one per line, each with a "step". Lines are appended; a
// resumed run first removes those beyond the step it resumes from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace tessera {

// The text of a log; "" if the file does not exist.
std::string read_log(const std::filesystem::path& path);

// The last bytes of a file, at most `most`, from the beginning of a line; "" if there is no file.
std::string tail_of(const std::filesystem::path& path, int64_t most);

// What the last line of a run's metrics.jsonl says; empty, at step 0, if there is none or
// it is incomplete.
struct LogEnd {
  int64_t step = 0;
  std::string event;   // "done", "failed", …; "" of a line with metrics.
  std::string reason;  // Why a run failed.
};
LogEnd end_of_log(const std::filesystem::path& run_directory);

// The member "step" of a line; nullopt if it has none or is incomplete.
std::optional<int64_t> step_of_line(std::string_view line);

// The integer value of `key` in a line; nullopt if it has none.
std::optional<int64_t> number_of_line(std::string_view line, std::string_view key);

// The values of `key` by step; empty if the file does not exist.
std::map<int64_t, double> values_in_log(const std::filesystem::path& path, std::string_view key);

// Writes all of the text to the file of this name. Error if it cannot.
void write_whole(int descriptor, std::string_view text, const std::filesystem::path& path);

class JsonlWriter {
 public:
  // Removes lines beyond `last_step` and an incomplete last line, by one atomic replacement.
  JsonlWriter(const std::filesystem::path& path, int64_t last_step);

  // Writes the whole line with one call, so that readers rarely see an incomplete one.
  void append(std::string_view json);
  // "was truncated" or "was removed or replaced", if another program did that; else "".
  std::string_view damage() const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  int64_t end_ = 0;  // The size after the last line.
};

// Describes in one line which training steps up to `last_step` have no line in the text of a
// metrics.jsonl (another program edited it, or the machine stopped before it was on disk); "" if
// none are missing. A line is due every `metrics_interval_steps` of the preceding event `start`, or
// else every `interval` steps; 0: never.
std::string describe_log_gaps(std::string_view metrics, int64_t last_step, int64_t interval);

}  // namespace tessera
