// SPDX-License-Identifier: Apache-2.0
#include "plugins/code_stamp.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "plugins/loader.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The first line of a file; "" if it cannot be read.
std::string line_of(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  return std::getline(stream, line) ? line : "";
}

// The commit of "refs/heads/main", which is in a file of this name or in packed-refs.
std::string revision_of(const std::string& reference, const fs::path& git) {
  if (std::string own = line_of(git / reference); !own.empty()) return own;
  std::ifstream packed(git / "packed-refs");  // "<revision> refs/heads/main"
  for (std::string line; std::getline(packed, line);)
    if (line.ends_with(" " + reference)) return line.substr(0, line.find(' '));
  return "";
}

// The revision that is checked out in the repository of this file or folder, 40 hexadecimal digits;
// "" without a repository. It reads git's files, because the program may not be installed.
std::string git_revision(const fs::path& path) {
  constexpr std::string_view kReference = "ref: ";
  std::error_code error;
  for (fs::path folder = fs::weakly_canonical(path, error); folder.has_relative_path();
       folder = folder.parent_path()) {
    const std::string head = line_of(folder / ".git/HEAD");
    if (head.starts_with(kReference))
      return revision_of(head.substr(kReference.size()), folder / ".git");
    if (!head.empty()) return head;
  }
  return "";
}

}  // namespace

CodeStamp code_stamp(const ExperimentEntry& entry) {
  CodeStamp code{.build = std::string(build_stamp())};
  for (const LoadedPlugin& plugin : loaded_plugins()) {
    const bool is_ours = plugin.file.parent_path() == own_plugins("experiments");
    if (is_ours && plugin.file != entry.plugin) continue;
    code.plugins += fmt::format("{}{} {:08x}", code.plugins.empty() ? "" : ", ",
                                plugin.file.filename().string(), plugin.checksum);
  }
  if (!entry.plugin.empty()) code.revision = git_revision(entry.plugin);
  return code;
}

}  // namespace tessera
