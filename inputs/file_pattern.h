// SPDX-License-Identifier: Apache-2.0
// Files that a path with * ? [ ] stands for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// Whether a path has any of * ? [ and there is no file of that very name.
bool is_file_pattern(const std::string& path);

// Sorted by name; empty if there is none.
std::vector<std::filesystem::path> matching_files(const std::string& pattern);

// The folder below which all of a pattern's files lie: what stands before its first * ? or [.
std::filesystem::path pattern_root(const std::string& pattern);

}  // namespace tessera
