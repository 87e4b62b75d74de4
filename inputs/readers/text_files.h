// SPDX-License-Identifier: Apache-2.0
// Finds text files by path, folder or file pattern (* ? [ ]), here or in an object store.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "inputs/readers/document_format.h"

namespace tessera {

// Returns whether a path has any of * ? [ and is not the name of a file.
bool is_file_pattern(const std::string& path);

// Returns files sorted by name; may be empty.
std::vector<std::filesystem::path> matching_files(const std::string& pattern);

// Returns the folder that contains all matches: the path before the first * ? or [.
std::filesystem::path pattern_root(const std::string& pattern);

struct TextFile {
  std::filesystem::path path;
  // The path below the requested folder, or the file's name: equal in every location and with any
  // other files.
  std::string name;
  std::string identity;                    // Equal for all paths, links and hard links of a file.
  const DocumentFormat* format = nullptr;  // By content and name; null: not looked at.
  // For an object (storage.h): its size, and its version, which names the contents.
  int64_t object_bytes = 0;
  std::string object_version;
};

struct TextFiles {
  std::vector<TextFile> files;  // Sorted by path.
  // Files left out and why, with counts: "left out: 2 files in Parquet (a.parquet, …)"; or "".
  std::string left_out;
};

// Returns the files of `paths`, each once, by whatever paths and links it is reached. A path is a
// file, a pattern, or the URL of one, or a folder: then all text files below it, compressed texts
// and lines of JSON included, also through links. Hidden names, token files (.bin), data that is
// not text, and the directories of runs and builds are left out. Error for a path without files,
// for a named file that is not text (token files excepted, or any file if `may_be_tokens`), and for
// folders with more data in other formats than text: it is rarely intended to read only the text.
TextFiles find_text_files(const std::vector<std::string>& paths, bool may_be_tokens = false);

// Returns Tessera's own sources and docs, found from the location of the running program; empty if
// they are not installed.
std::vector<TextFile> tessera_source_files();

}  // namespace tessera
