// SPDX-License-Identifier: Apache-2.0
// Finds text files by path, folder or file pattern (* ? [ ]).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// Whether a path has any of * ? [ and is not the name of a file.
bool is_file_pattern(const std::string& path);

// Sorted by name; may be empty.
std::vector<std::filesystem::path> matching_files(const std::string& pattern);

// The folder that contains all matches: the path before the first * ? or [.
std::filesystem::path pattern_root(const std::string& pattern);

// The files that `paths` name, sorted and without duplicates. A path is a file, a pattern, or a
// folder: then all text files below it, compressed texts and lines of JSON included (.jsonl.gz,
// .txt.zst, …), without hidden names, symbolic links, binary files and folders called build or
// runs. Error for a path without files.
std::vector<std::filesystem::path> find_text_files(const std::vector<std::string>& paths);

// Tessera's own sources and docs, found from the location of the running program; empty if they are
// not installed. Sets `root` to their folder.
std::vector<std::filesystem::path> tessera_source_files(std::filesystem::path* root);

}  // namespace tessera
