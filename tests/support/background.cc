// SPDX-License-Identifier: Apache-2.0
#include "tests/support/background.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <fmt/core.h>

#include "core/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

}  // namespace

Background::Background(const std::filesystem::path& folder, const std::string& command)
    : folder_(folder) {
  std::filesystem::remove(folder / "out");
  std::filesystem::remove(folder / "errors");
  const std::string line =
      fmt::format("cd '{}' && exec {} >out 2>errors </dev/null", folder.string(), command);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  ::setpgid(pid_, pid_);  // Set in parent and child, so no race.
  if (pid_ > 0) return;
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

Background::~Background() {
  if (ended_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string Background::output() const {
  return read_bytes(folder_ / "out") + read_bytes(folder_ / "errors");
}

std::optional<int> Background::wait(std::chrono::seconds time) {
  int status = 0;
  if (!comes_true([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, time))
    return std::nullopt;
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool comes_true(const std::function<bool()>& condition, std::chrono::seconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(kPoll))
    if (condition()) return true;
  return false;
}

}  // namespace tessera
