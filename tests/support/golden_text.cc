// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden_text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>

namespace tessera {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

}  // namespace

std::string golden_difference(std::string_view name, std::string_view text) {
  const std::filesystem::path path =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / name;
  if (std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  std::istringstream expected(contents(path)), got{std::string(text)};
  for (int number = 1;; ++number) {
    std::string a, b;
    const bool more_a = static_cast<bool>(std::getline(expected, a));
    const bool more_b = static_cast<bool>(std::getline(got, b));
    if (!more_a && !more_b) return "";
    if (more_a == more_b && a == b) continue;
    return fmt::format(
        "{}:{} holds '{}', got '{}'; if that is meant, run with TESSERA_UPDATE_GOLDENS=1",
        path.string(), number, more_a ? a : "(end of file)", more_b ? b : "(end)");
  }
}

}  // namespace tessera
