// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/eval_writer.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/logging/jsonl_writer.h"

namespace tessera {
namespace {

constexpr std::string_view kEvalOutPrefix = "eval/";

class LockedFile {
 public:
  explicit LockedFile(const std::filesystem::path& path) : path_(path) {
    descriptor_ = open_own_file(path);
    while (::flock(descriptor_, LOCK_EX) != 0)
      if (errno != EINTR) fail_closing("cannot lock");
  }
  ~LockedFile() { ::close(descriptor_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // The size up to the end of the last complete line.
  int64_t whole_lines() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail_with("cannot look at it");
    int64_t size = status.st_size;
    char chunk[4096];
    while (size > 0) {
      const int64_t begin = std::max<int64_t>(0, size - static_cast<int64_t>(sizeof(chunk)));
      const ssize_t read = ::pread(descriptor_, chunk, static_cast<size_t>(size - begin), begin);
      if (read != size - begin) fail_with("cannot read");
      for (int64_t i = read; i > 0; --i)
        if (chunk[i - 1] == '\n') return begin + i;
      size = begin;
    }
    return 0;
  }
  void cut(int64_t size) {
    if (::ftruncate(descriptor_, size) != 0) fail_with("cannot shorten");
  }
  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with("cannot write");
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

 private:
  [[noreturn]] void fail_with(std::string_view what) const {
    fail("{}: {}: {}", path_.string(), what, std::strerror(errno));
  }
  // The constructor may throw, and then no destructor runs.
  [[noreturn]] void fail_closing(std::string_view what) const {
    const int error = errno;
    ::close(descriptor_);
    errno = error;
    fail_with(what);
  }

  const std::filesystem::path& path_;
  int descriptor_ = -1;
};

}  // namespace

EvalWriter::EvalWriter(std::filesystem::path run_directory)
    : directory_(std::move(run_directory) / "eval_out") {}

void EvalWriter::add(int64_t step, const std::map<std::string, double>& metrics) {
  std::map<std::string, JsonLine> lines;  // By file: the first part of the metric's name.
  for (const auto& [full, value] : metrics) {
    CHECK(full.starts_with(kEvalOutPrefix));
    const std::string name = full.substr(kEvalOutPrefix.size());
    const size_t first = name.find('/'), last = name.rfind('/');
    CHECK(first != std::string::npos, "eval metric '{}'", full);
    const auto [line, is_new] = lines.try_emplace(name.substr(0, first));
    if (is_new) line->second.add("step", step);
    line->second.add(name.substr(first + 1), value);
    if (!std::isfinite(value)) continue;
    const std::string split = name.substr(0, last);
    std::unique_ptr<EventFile>& events = events_[split];
    if (!events) events = std::make_unique<EventFile>(directory_ / "summaries" / split, 0);
    events->scalar(step, name.substr(last + 1), value);
  }
  for (const auto& [file, line] : lines)
    append_shared_line(directory_ / (file + ".jsonl"), line.text());
  for (const auto& [split, events] : events_) events->flush();
}

std::set<int64_t> EvalWriter::steps(const std::string& dataset) const {
  std::set<int64_t> steps;
  const std::filesystem::path file = directory_ / (dataset + ".jsonl");
  if (!std::filesystem::is_regular_file(file)) return steps;
  const std::string text = read_file(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // An incomplete line does not count.
    if (const auto step = step_of_line(std::string_view(text).substr(begin, end - begin)))
      steps.insert(*step);
    begin = end + 1;
  }
  return steps;
}

void append_shared_line(const std::filesystem::path& path, std::string_view line) {
  std::filesystem::create_directories(path.parent_path());
  LockedFile file(path);
  file.cut(file.whole_lines());
  file.write(std::string(line) + "\n");
}

}  // namespace tessera
