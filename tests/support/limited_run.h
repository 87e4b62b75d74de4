// SPDX-License-Identifier: Apache-2.0
// Runs a program of the build with limits on time and memory, for tests with hostile arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct RunLimits {
  double seconds = 60;                       // Wall time after which the program is killed.
  int64_t memory_bytes = int64_t{12} << 30;  // Address space; unlimited under a sanitizer.
  int64_t file_bytes = int64_t{64} << 20;    // Size of one file.
};

struct RunResult {
  int exit_code = 0;       // -signal if a signal ended it.
  bool timed_out = false;  // It was killed after `seconds`.
  std::string output;
  std::string errors;
};

// Runs bin/<program> in `directory` with empty standard input.
RunResult run_limited(const std::string& program, const std::vector<std::string>& arguments,
                      const std::filesystem::path& directory, const RunLimits& limits = {});

}  // namespace tessera
