// SPDX-License-Identifier: Apache-2.0
// Runs independent readers of the file formats (h5py, TensorBoard) in a Python that has them.
// Without one the test is skipped.
#pragma once

#include <cstdlib>
#include <string>

#include <fmt/format.h>

namespace tessera {

// A Python that can import the module: $TESSERA_PYTHON, or the system's; "" if neither can.
inline std::string python_with(const std::string& module) {
  const char* chosen = std::getenv("TESSERA_PYTHON");
  for (const std::string python :
       {chosen == nullptr ? "" : chosen, "/usr/bin/python3", "python3"}) {
    const std::string command = fmt::format("{} -c 'import {}' 2>/dev/null", python, module);
    if (!python.empty() && std::system(command.c_str()) == 0) return python;
  }
  return "";
}

}  // namespace tessera
