// SPDX-License-Identifier: Apache-2.0
// The files of the repository as text: lists of paths, includes, comments and code apart. The house
// tests read them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

const std::filesystem::path& source_root();

// Folders of the sources, without and with the tests.
const std::vector<std::string>& code_folders();
const std::vector<std::string>& code_and_test_folders();

// Paths below `folders`, relative to the root and sorted, of files with one of these extensions.
std::vector<std::string> source_files(const std::vector<std::string>& folders,
                                      const std::vector<std::string>& extensions);

// All files of the repository, relative to the root: those in its folders and directly at the root.
std::vector<std::string> repository_files();

// The folder that has a CMake target of its own: "core/passes" of core/passes/spmd/lower.cc,
// "tasks" of tasks/eval/evaluation.cc.
std::string target_folder(const std::string& file);

struct Include {
  std::string file;
  bool is_quoted = false;
};
std::vector<Include> includes_of(const std::string& text);

// The text with everything but comments, or everything but code, replaced by spaces. Line breaks
// stay, so positions and line numbers are those of the text. Comment markers count as code. A .md
// file is one comment; in other files than .h, .cc and .md a comment starts with '#'.
std::string comments_of(const std::string& file, const std::string& text);
std::string code_of(const std::string& file, const std::string& text);

// Prints the lines, each on a line of its own, where there are any; for what a test found.
void print_found(std::string_view what, const std::vector<std::string>& lines);

// "file:12" for the line of a position in the text.
std::string place_in(const std::string& file, std::string_view text, size_t position);

}  // namespace tessera
