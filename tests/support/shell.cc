// SPDX-License-Identifier: Apache-2.0
#include "tests/support/shell.h"

#include <sys/wait.h>

#include <cstdlib>

#include <fmt/core.h>

#include "tests/support/temporary_directory.h"

namespace tessera {

Outcome shell(const std::filesystem::path& folder, const std::string& command,
              std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  const TemporaryDirectory scratch;
  const Clock::time_point begin = Clock::now();
  const std::string whole = fmt::format("cd '{}' && timeout -k 5 {} {} >'{}' 2>'{}' </dev/null",
                                        folder.string(), limit.count(), command,
                                        (scratch / "out").string(), (scratch / "errors").string());
  const int status = std::system(whole.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  constexpr int kTimedOut = 124;
  return {.exit_code = code == kTimedOut ? -1 : code,
          .out = read_bytes(scratch / "out"),
          .errors = read_bytes(scratch / "errors"),
          .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
}

Outcome bash(const std::filesystem::path& folder, const std::string& script,
             std::chrono::seconds limit) {
  const TemporaryDirectory scratch;
  write_bytes(scratch / "script", script + "\n");
  return shell(folder, fmt::format("bash '{}'", (scratch / "script").string()), limit);
}

}  // namespace tessera
