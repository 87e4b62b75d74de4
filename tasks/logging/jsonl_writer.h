// SPDX-License-Identifier: Apache-2.0
// A file of JSON objects, one a line, each with a "step": metrics.jsonl. It is appended to a line
// at a time; a resumed run first cuts what lies beyond the step it goes on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The text of a log, of any size; "" if there is none.
std::string read_log(const std::filesystem::path& path);

// The value of the member "step" of such a line; nullopt if it has none or was not written whole.
std::optional<int64_t> step_of_line(std::string_view line);

// The whole number that such a line gives for `key`; nullopt if it has none.
std::optional<int64_t> number_of_line(std::string_view line, std::string_view key);

// The numbers that lines of a log give for `key`, by step; empty if there is no log.
std::map<int64_t, double> values_in_log(const std::filesystem::path& path, std::string_view key);

class JsonlWriter {
 public:
  // Cuts lines whose step is beyond `last_step`, and the end of one that was being written when the
  // process was killed, in one step; then appends.
  JsonlWriter(const std::filesystem::path& path, int64_t last_step);
  ~JsonlWriter();
  JsonlWriter(const JsonlWriter&) = delete;
  JsonlWriter& operator=(const JsonlWriter&) = delete;

  // One write of the whole line, so that a reader never sees half of it for long.
  void append(std::string_view json);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Lines that metrics.jsonl should have and has not: something else than the run wrote in it, or the
// machine stopped before it was on disk. A resumed run says so; nothing depends on them.

// One line that says which training steps up to `last_step` have no line in the text of a
// metrics.jsonl; empty if all have one. A line is due every `metrics_interval_steps` that the event
// `start` before it gives, or else every `interval` steps; 0: none is due.
std::string describe_log_gaps(std::string_view metrics, int64_t last_step, int64_t interval);

}  // namespace tessera
