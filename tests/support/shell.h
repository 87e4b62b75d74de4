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

// Runs a command of one program in `folder`, with nothing on its standard input. Killed after
// `limit`: -1.
Outcome shell(const std::filesystem::path& folder, const std::string& command,
              std::chrono::seconds limit = std::chrono::seconds(60));

// The same of a bash script, which is written elsewhere than in `folder`.
Outcome bash(const std::filesystem::path& folder, const std::string& script,
             std::chrono::seconds limit = std::chrono::seconds(60));

}  // namespace tessera
