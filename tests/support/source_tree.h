// SPDX-License-Identifier: Apache-2.0
// The files of the repository as text: lists of paths, includes, and comments separated from code.
// Used by the house tests.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

const std::filesystem::path& source_root();

// Source folders, without and with the tests.
const std::vector<std::string>& code_folders();
const std::vector<std::string>& code_and_test_folders();

// Sorted paths, relative to the root, of files below `folders` with one of these extensions.
std::vector<std::string> source_files(const std::vector<std::string>& folders,
                                      const std::vector<std::string>& extensions);

// All files of the repository, relative to the root: those in its folders and at the root.
std::vector<std::string> repository_files();

// The folder of a file's CMake target: "core/compile" for core/compile/spmd/lower.cc, "tasks" for
// tasks/run/eval/evaluation.cc.
std::string target_folder(const std::string& file);

struct Include {
  std::string file;
  bool is_quoted = false;
};
std::vector<Include> includes_of(const std::string& text);

// The text with everything except comments, or except code, replaced by spaces. Line breaks stay,
// so positions and line numbers do not change. Comment markers count as code. A .md file is one
// comment; in files other than C++, CUDA and .md a comment starts with '#'.
std::string comments_of(const std::string& file, const std::string& text);
std::string code_of(const std::string& file, const std::string& text);

// Prints the lines, one per line, if there are any. Used for a test's findings.
void print_found(std::string_view what, const std::vector<std::string>& lines);

// "file:12" for a position in the text.
std::string place_in(const std::string& file, std::string_view text, size_t position);

}  // namespace tessera
