// SPDX-License-Identifier: Apache-2.0
// A shell command that runs while a test goes on: a launcher and its processes, to be struck.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace tessera {

// Ended with all it started when it is destroyed.
class Background {
 public:
  // Runs in `folder`; what it prints goes to files there, `output` and its errors.
  Background(const std::filesystem::path& folder, const std::string& command);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  int pid() const { return pid_; }
  std::string output() const;  // What it has printed so far, with its errors.
  // The exit code, or -signal; nullopt if it does not end within `time`.
  std::optional<int> wait(std::chrono::seconds time);

 private:
  std::filesystem::path folder_;
  int pid_ = -1;
  bool ended_ = false;
};

// Whether the condition comes true within `time`.
bool comes_true(const std::function<bool()>& condition,
                std::chrono::seconds time = std::chrono::seconds(60));

}  // namespace tessera
