// SPDX-License-Identifier: Apache-2.0
// Test cases that cannot run on this machine. If all test cases of a program were skipped, it exits
// with the code that ctest shows as skipped (tests/main.cc).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>

namespace tessera {

// Prints the reason and counts the test case as skipped; the test case must then return.
void skip_test(const std::string& reason);
int tests_skipped();

// A Python that can import the module (h5py, TensorBoard: independent readers of file formats):
// $TESSERA_PYTHON, or the system's; "" if neither can, and the test is skipped.
inline std::string python_with(const std::string& module) {
  const char* chosen = std::getenv("TESSERA_PYTHON");
  for (const std::string python :
       {chosen == nullptr ? "" : chosen, "/usr/bin/python3", "python3"}) {
    const std::string command = fmt::format("{} -c 'import {}' 2>/dev/null", python, module);
    if (!python.empty() && std::system(command.c_str()) == 0) return python;
  }
  return "";
}

// Why Parquet and Arrow cannot be read here; "" if they can.
inline std::string why_no_columns() {
  const std::filesystem::path build = TESSERA_BINARY_DIR;
  return std::filesystem::exists(build / "lib/tessera/readers/arrow.so")
             ? ""
             : "no Apache Arrow (pip install pyarrow)";
}

}  // namespace tessera
