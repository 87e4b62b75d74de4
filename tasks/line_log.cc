// SPDX-License-Identifier: Apache-2.0
#include "tasks/line_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/base/error.h"
#include "core/base/file.h"

namespace tessera {
namespace {

void cut(const std::filesystem::path& path, int64_t last_step) {
  if (!std::filesystem::is_regular_file(path)) return;
  const std::string text = read_file(path);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    const std::optional<int64_t> step = step_of_line(line.substr(0, line.size() - 1));
    if (step && *step <= last_step) kept += line;
    begin = end + 1;
  }
  if (kept != text) write_file_atomically(path, kept);
}

}  // namespace

std::optional<int64_t> step_of_line(std::string_view line) {
  if (!line.starts_with('{') || !line.ends_with('}')) return std::nullopt;
  constexpr std::string_view kKey = "\"step\":";
  const size_t at = line.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  const char* begin = line.data() + at + kKey.size();
  while (*begin == ' ') ++begin;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), step);
  if (error != std::errc() || end == begin) return std::nullopt;
  return step;
}

LineLog::LineLog(const std::filesystem::path& path, int64_t last_step) : path_(path) {
  cut(path, last_step);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("{}: cannot open: {}", path.string(), std::strerror(errno));
}

LineLog::~LineLog() { ::close(descriptor_); }

void LineLog::append(std::string_view json) {
  std::string rest(json);
  rest += '\n';
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot write: {}", path_.string(), std::strerror(errno));
    rest.erase(0, static_cast<size_t>(written));
  }
}

}  // namespace tessera
