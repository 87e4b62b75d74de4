// SPDX-License-Identifier: Apache-2.0
#include "inputs/file_pattern.h"

#include <glob.h>

#include <algorithm>

namespace tessera {

namespace {

constexpr const char* kWild = "*?[";

}  // namespace

bool is_file_pattern(const std::string& path) {
  return path.find_first_of(kWild) != std::string::npos && !std::filesystem::exists(path);
}

std::filesystem::path pattern_root(const std::string& pattern) {
  return std::filesystem::path(pattern.substr(0, pattern.find_first_of(kWild))).parent_path();
}

std::vector<std::filesystem::path> matching_files(const std::string& pattern) {
  glob_t found{};
  std::vector<std::filesystem::path> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());  // By bytes, whatever the locale.
  return paths;
}

}  // namespace tessera
