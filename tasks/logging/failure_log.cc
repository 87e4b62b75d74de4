// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/failure_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>

#include <fmt/chrono.h>

namespace tessera {

void log_failure(const std::filesystem::path& run_directory, std::string_view text) {
  if (run_directory.empty()) return;
  const std::filesystem::path file = run_directory / "failures.log";
  const int descriptor = ::open(
      file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (descriptor < 0) return;
  std::string line = fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {}", fmt::gmtime(std::time(nullptr)), text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // One write, so that lines of several processes do not interleave.
  [[maybe_unused]] const ssize_t written = ::write(descriptor, line.data(), line.size());
  ::close(descriptor);
}

}  // namespace tessera
