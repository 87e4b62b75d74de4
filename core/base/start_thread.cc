// SPDX-License-Identifier: Apache-2.0
#include "core/base/start_thread.h"

#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

// Of this process; 0 where the kernel does not say.
int64_t running_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::strtoll(line.c_str() + 8, nullptr, 10);
  return 0;
}

}  // namespace

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(
        "the system refuses to start another thread ({}); this process has {}. Use fewer with "
        "--threads=N or --devices=N, or raise the limit (ulimit -u, ulimit -v, or the container's "
        "pids.max)",
        error.code().message(), running_threads());
  }
}

}  // namespace tessera
