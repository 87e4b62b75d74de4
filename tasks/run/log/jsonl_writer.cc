// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/jsonl_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <ranges>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/json.h"

namespace tessera {
namespace {

// Calls visit(line, complete) for each line, without its newline.
template <typename Visitor>
void each_line(std::string_view text, Visitor&& visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    visit(text.substr(0, end), end != std::string_view::npos);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

// The number after "key": in one of our lines, which are flat.
template <typename Number>
std::optional<Number> number_after(std::string_view line, std::string_view key) {
  const std::string quoted = fmt::format("\"{}\":", key);
  size_t at = line.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  at = line.find_first_not_of(' ', at + quoted.size());
  const std::string_view text = line.substr(std::min(at, line.size()));
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

void cut(const std::filesystem::path& path, int64_t last_step) {
  const std::string text = read_log(path);
  std::string kept;
  each_line(text, [&](std::string_view line, bool whole) {
    const std::optional<int64_t> step = step_of_line(line);
    if (whole && step && *step <= last_step) kept += fmt::format("{}\n", line);
  });
  if (kept != text) write_file_atomically(path, kept);
}

constexpr size_t kMostRanges = 3;

// What the lines of a log contain, in order.
struct Written {
  std::set<int64_t> steps;               // Steps with a training line.
  std::map<int64_t, int64_t> intervals;  // The interval in effect after this step.
};

Written read_lines(std::string_view text, int64_t interval) {
  Written written;
  written.intervals[0] = interval;
  each_line(text, [&](std::string_view line, bool) {
    const auto step = step_of_line(line);
    if (!step) return;
    if (line.find("\"event\": \"start\"") != std::string_view::npos) {
      if (const auto given = number_of_line(line, "metrics_interval_steps"))
        written.intervals[*step] = *given;
    } else if (line.find("\"grad_norm\":") != std::string_view::npos) {
      written.steps.insert(*step);
    }
  });
  return written;
}

// "12", "31 to 50".
std::string range_text(std::pair<int64_t, int64_t> range) {
  const auto& [first, last] = range;
  return first == last ? std::to_string(first) : fmt::format("{} to {}", first, last);
}

}  // namespace

std::string read_log(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return "";
  return read_file(path, std::numeric_limits<int64_t>::max() - 1);
}

std::string tail_of(const std::filesystem::path& path, int64_t most) {
  if (!std::filesystem::is_regular_file(path)) return "";
  const ByteFile file = ByteFile::open(path);
  const int64_t begin = std::max<int64_t>(0, file.size() - most);
  std::string text(static_cast<size_t>(file.size() - begin), '\0');
  file.read_at(begin, std::as_writable_bytes(std::span(text)));
  if (begin > 0) text.erase(0, text.find('\n') + 1);
  return text;
}

LogEnd end_of_log(const std::filesystem::path& run_directory) {
  constexpr int64_t kTail = 65536;  // Lines can be long: norms of every parameter.
  LogEnd end;
  try {
    std::string text = tail_of(run_directory / "metrics.jsonl", kTail);
    text.erase(text.find_last_not_of('\n') + 1);
    const Json line = parse_json(text.substr(text.rfind('\n') + 1), "metrics.jsonl");
    end.step = line.at("step").as_integer();
    if (const Json* event = line.find("event")) end.event = event->as_string();
    if (const Json* reason = line.find("reason")) end.reason = reason->as_string();
  } catch (const std::exception&) {  // The run is writing the line, or was killed meanwhile.
    return {};
  }
  return end;
}

std::optional<int64_t> step_of_line(std::string_view line) {
  if (!line.starts_with('{') || !line.ends_with('}')) return std::nullopt;
  return number_of_line(line, "step");
}

std::optional<int64_t> number_of_line(std::string_view line, std::string_view key) {
  return number_after<int64_t>(line, key);
}

std::map<int64_t, double> values_in_log(const std::filesystem::path& path, std::string_view key) {
  std::map<int64_t, double> values;
  each_line(read_log(path), [&](std::string_view line, bool) {
    const auto step = step_of_line(line);
    const auto value = number_after<double>(line, key);
    if (step && value) values[*step] = *value;
  });
  return values;
}

void write_whole(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot write: {}", path.string(), std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

JsonlWriter::JsonlWriter(const std::filesystem::path& path, int64_t last_step) : path_(path) {
  if (!std::filesystem::is_symlink(path)) cut(path, last_step);
  file_ = open_own_file(path);
  struct stat status {};
  if (::fstat(file_.get(), &status) == 0) end_ = status.st_size;
}

void JsonlWriter::append(std::string_view json) {
  const std::string line = fmt::format("{}\n", json);
  write_whole(file_.get(), line, path_);
  end_ += std::ssize(line);
}

std::string_view JsonlWriter::damage() const {
  struct stat held {
  }, named{};
  if (::fstat(file_.get(), &held) != 0) return "";
  if (held.st_size < end_) return "was truncated";
  const bool is_ours =
      ::stat(path_.c_str(), &named) == 0 ? held.st_ino == named.st_ino : errno != ENOENT;
  return is_ours ? "" : "was removed or replaced";
}

std::string describe_log_gaps(std::string_view metrics, int64_t last_step, int64_t interval) {
  const Written written = read_lines(metrics, interval);
  std::vector<std::pair<int64_t, int64_t>> ranges;  // First and last step of missing lines.
  int64_t lost = 0;
  bool in_range = false;
  for (auto at = written.intervals.begin(); at != written.intervals.end(); ++at) {
    const auto next = std::next(at);
    const int64_t end = next == written.intervals.end() ? last_step : next->first;
    if (at->second <= 0) continue;
    int64_t step = at->first - at->first % at->second + at->second;
    for (; step <= std::min(end, last_step); step += at->second) {
      const bool is_missing = !written.steps.contains(step);
      if (is_missing && !in_range) ranges.emplace_back(step, step);
      if (is_missing) ranges.back().second = step;
      lost += is_missing;
      in_range = is_missing;
    }
  }
  if (lost == 0) return "";
  const size_t shown = std::min(ranges.size(), kMostRanges);
  return fmt::format(
      "metrics.jsonl lacks the lines of {} training step{} ({}{}); the run continues without them",
      lost, lost == 1 ? "" : "s",
      fmt::join(ranges | std::views::take(shown) | std::views::transform(range_text), ", "),
      shown == ranges.size() ? "" : fmt::format(" and {} more ranges", ranges.size() - shown));
}

}  // namespace tessera
