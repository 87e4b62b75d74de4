// SPDX-License-Identifier: Apache-2.0
// A program of the build run under limits of time and memory, for tests with hostile arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct RunLimits {
  double seconds = 60;                       // Of wall time; the program is then killed.
  int64_t memory_bytes = int64_t{12} << 30;  // Of address space; none under a sanitizer.
  int64_t file_bytes = int64_t{64} << 20;    // Of one file.
};

struct RunResult {
  int exit_code = 0;       // -signal if a signal ended it.
  bool timed_out = false;  // And was killed.
  std::string output;
  std::string errors;
};

// Runs bin/<program> in `directory`, with nothing on its standard input.
RunResult run_limited(const std::string& program, const std::vector<std::string>& arguments,
                      const std::filesystem::path& directory, const RunLimits& limits = {});

}  // namespace tessera
