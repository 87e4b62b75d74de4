// SPDX-License-Identifier: Apache-2.0
// A shell command that runs in the background of a test: a launcher and its processes, which the
// test may signal or kill.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace tessera {

// The destructor ends the command and all processes that it started.
class Background {
 public:
  // Runs in `folder`. Its standard output and errors go to files there.
  Background(const std::filesystem::path& folder, const std::string& command);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  int pid() const { return pid_; }
  std::string output() const;  // Standard output and errors so far.
  // The exit code, or -signal; nullopt if it does not end within `time`.
  std::optional<int> wait(std::chrono::seconds time);

 private:
  std::filesystem::path folder_;
  int pid_ = -1;
  bool ended_ = false;
};

// Whether the condition becomes true within `time`.
bool comes_true(const std::function<bool()>& condition,
                std::chrono::seconds time = std::chrono::seconds(60));

}  // namespace tessera
