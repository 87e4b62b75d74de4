// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_tree.h"

#include <algorithm>
#include <regex>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool has_slash_comments(const std::string& file) {
  return file.ends_with(".h") || file.ends_with(".cc") || file.ends_with(".cu") ||
         file.ends_with(".cuh");
}

// The end of a string or character literal that starts at `at`.
size_t literal_end(const std::string& text, size_t at) {
  const char quote = text[at];
  const bool is_raw = quote == '"' && at > 0 && text[at - 1] == 'R';
  if (is_raw) {
    const size_t open = text.find('(', at);
    const std::string close = ")" + text.substr(at + 1, open - at - 1) + "\"";
    return std::min(text.size(), text.find(close, open) + close.size());
  }
  for (size_t i = at + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i + 1;
    }
  }
  return at + 1;  // An apostrophe in text removed by the preprocessor.
}

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// Without the comment markers, so that a sentence over several lines is only words and spaces.
std::vector<TextRange> slash_comments(const std::string& text) {
  std::vector<TextRange> ranges;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::string_view two = std::string_view(text).substr(i, 2);
    if (two == "//") {
      const size_t end = std::min(text.size(), text.find('\n', i));
      ranges.push_back({i + 2, end});
      i = end;
    } else if (two == "/*") {
      const size_t end = std::min(text.size(), text.find("*/", i + 2));
      ranges.push_back({i + 2, end});
      i = end + 2;
    } else if (c == '"' || (c == '\'' && (i == 0 || !is_word(text[i - 1])))) {
      i = literal_end(text, i);
    } else {
      ++i;
    }
  }
  return ranges;
}

// From a '#' at the start of a word to the end of its line.
std::vector<TextRange> hash_comments(const std::string& text) {
  std::vector<TextRange> ranges;
  for (size_t i = 0; (i = text.find('#', i)) < text.size();) {
    const bool starts_word = i == 0 || text[i - 1] == '\n' || text[i - 1] == ' ';
    const size_t end = std::min(text.size(), text.find('\n', i));
    if (starts_word) ranges.push_back({i + 1, end});
    i = starts_word ? end : i + 1;
  }
  return ranges;
}

std::vector<TextRange> comment_ranges(const std::string& file, const std::string& text) {
  if (file.ends_with(".md")) return {{0, text.size()}};
  return has_slash_comments(file) ? slash_comments(text) : hash_comments(text);
}

}  // namespace

const filesystem::path& source_root() {
  static const filesystem::path path = TESSERA_SOURCE_DIR;
  return path;
}

const std::vector<std::string>& code_folders() {
  static const std::vector<std::string> folders = {"core",  "layers",  "inputs",
                                                   "tasks", "plugins", "experiments"};
  return folders;
}

const std::vector<std::string>& code_and_test_folders() {
  static const std::vector<std::string> folders = {"core",    "layers",      "inputs", "tasks",
                                                   "plugins", "experiments", "tests",  "cmake"};
  return folders;
}

std::vector<std::string> source_files(const std::vector<std::string>& folders,
                                      const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : filesystem::recursive_directory_iterator(source_root() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() &&
          std::find(extensions.begin(), extensions.end(), extension) != extensions.end())
        files.push_back(entry.path().lexically_relative(source_root()).string());
    }
  }
  std::sort(files.begin(), files.end());
  CHECK(!files.empty());
  return files;
}

std::vector<std::string> repository_files() {
  std::vector<std::string> folders = code_and_test_folders();
  folders.insert(folders.end(), {"docs", ".ci"});
  std::vector<std::string> files;
  for (const std::string& folder : folders)
    for (const auto& entry : filesystem::recursive_directory_iterator(source_root() / folder))
      if (entry.is_regular_file())
        files.push_back(entry.path().lexically_relative(source_root()).string());
  for (const auto& entry : filesystem::directory_iterator(source_root()))
    if (entry.is_regular_file()) files.push_back(entry.path().filename().string());
  return files;
}

std::string target_folder(const std::string& file) {
  const size_t slash = file.find('/');
  if (file.substr(0, slash) != "core") return file.substr(0, slash);
  return file.substr(0, file.find('/', slash + 1));
}

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex kInclude(R"re((?:^|\n)#include ([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kInclude);
       at != std::sregex_iterator(); ++at)
    includes.push_back({(*at)[2], (*at)[1] == "\""});
  return includes;
}

std::string comments_of(const std::string& file, const std::string& text) {
  std::string comments = text;
  for (char& c : comments)
    if (c != '\n') c = ' ';
  for (const TextRange& range : comment_ranges(file, text))
    std::copy(text.begin() + range.begin, text.begin() + range.end, comments.begin() + range.begin);
  return comments;
}

std::string code_of(const std::string& file, const std::string& text) {
  std::string code = text;
  for (const TextRange& range : comment_ranges(file, text))
    for (size_t i = range.begin; i < range.end; ++i)
      if (code[i] != '\n') code[i] = ' ';
  return code;
}

void print_found(std::string_view what, const std::vector<std::string>& lines) {
  if (!lines.empty())
    fmt::print(stderr, "{}: {}\n  {}\n", what, lines.size(), fmt::join(lines, "\n  "));
}

std::string place_in(const std::string& file, std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  return fmt::format("{}:{}", file, 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace tessera
