// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compiler.h"

#include <filesystem>
#include <regex>
#include <sstream>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {

std::string compiler() {
  std::istringstream cache(read_file(std::filesystem::path(TESSERA_BINARY_DIR) / "CMakeCache.txt"));
  static const std::regex kEntry("CMAKE_CXX_COMPILER:[A-Z]+=(.+)");
  std::smatch match;
  for (std::string line; std::getline(cache, line);)
    if (std::regex_match(line, match, kEntry)) return match[1].str();
  fail("CMakeCache.txt names no compiler");
}

}  // namespace tessera
