// SPDX-License-Identifier: Apache-2.0
// Shell commands that a test runs and waits for.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace tessera {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string errors;
  double seconds = 0;
};

// Runs a command of one program in `folder` with empty standard input. Killed after `limit`; the
// exit code is then -1.
Outcome shell(const std::filesystem::path& folder, const std::string& command,
              std::chrono::seconds limit = std::chrono::seconds(60));

// The same for a bash script, which is stored outside `folder`.
Outcome bash(const std::filesystem::path& folder, const std::string& script,
             std::chrono::seconds limit = std::chrono::seconds(60));

}  // namespace tessera
