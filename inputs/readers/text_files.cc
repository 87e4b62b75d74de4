// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/text_files.h"

#include <glob.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWild = "*?[";

bool is_excluded(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "build" || name == "runs" || name == "__pycache__";
}

bool has_no_nul(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  char head[8192];
  stream.read(head, sizeof(head));
  return std::find(head, head + stream.gcount(), '\0') == head + stream.gcount();
}

// By name, without decompressing.
bool is_compressed_text(const fs::path& path) {
  static const std::set<std::string> kOuter = {".gz", ".zst"};
  static const std::set<std::string> kInner = {".txt",  ".text",  ".md",
                                               ".json", ".jsonl", ".ndjson"};
  return kOuter.contains(path.extension().string()) &&
         kInner.contains(path.stem().extension().string());
}

void add_directory(const fs::path& directory, std::set<fs::path>* files) {
  std::error_code error;
  fs::path at = directory;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    at = entry->path();
    if (entry->is_symlink()) continue;
    if (is_excluded(at)) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && (is_compressed_text(at) || has_no_nul(at))) {
      files->insert(at);
    }
  }
  if (error)
    fail("{}: cannot read the folder: {}; name the files to read", at.string(), error.message());
}

}  // namespace

bool is_file_pattern(const std::string& path) {
  return path.find_first_of(kWild) != std::string::npos && !fs::exists(path);
}

fs::path pattern_root(const std::string& pattern) {
  return fs::path(pattern.substr(0, pattern.find_first_of(kWild))).parent_path();
}

std::vector<fs::path> matching_files(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());  // By bytes, in any locale.
  return paths;
}

std::vector<fs::path> find_text_files(const std::vector<std::string>& paths) {
  std::set<fs::path> files;
  for (const std::string& path : paths) {
    std::vector<fs::path> named = {path};
    if (!fs::exists(path)) named = matching_files(path);
    if (named.empty())
      fail("{}: no such file or directory, and no file matches it as a pattern{}", path,
           path == "-" ? "; standard input is not read: write the text to a file" : "");
    for (const fs::path& one : named) {
      if (fs::is_directory(one)) {
        add_directory(one, &files);
      } else {
        require_regular_file(one);
        files.insert(one);
      }
    }
  }
  return {files.begin(), files.end()};
}

std::vector<fs::path> tessera_source_files(fs::path* root) {
  static const std::set<std::string> kSuffixes = {".h", ".cc", ".md", ".py", ".cmake", ".sh"};
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (!error && folder.has_relative_path()) {
    folder = folder.parent_path();
    if (!fs::exists(folder / "core/graph/graph.h") || !fs::exists(folder / "CMakeLists.txt"))
      continue;
    std::set<fs::path> files;
    add_directory(folder, &files);
    std::erase_if(
        files, [](const fs::path& file) { return !kSuffixes.contains(file.extension().string()); });
    *root = folder;
    return {files.begin(), files.end()};
  }
  return {};
}

}  // namespace tessera
