// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/text_files.h"

#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/foreign_format.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWild = "*?[";

// The reason why a name in a folder is not read, or the format of a file that is.
struct Refusal {
  std::string reason;      // "Parquet"; "": it is read.
  std::string advice;      // Text after the path in a message; or "".
  int64_t data_bytes = 0;  // Bytes of data that the user probably means to read.
  const DocumentFormat* format = nullptr;
};

Refusal refusal_of_file(const fs::path& path) {
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  if (lower_extension(path) == ".bin") return {"a token file (.bin)"};
  const std::string head = head_of_file(path);
  const DocumentFormat& format = format_of_file(path, head);
  if (!format.is_text) return {.format = &format};
  if (const auto foreign = foreign_format(head))
    return {std::string(foreign->name), describe(*foreign, path),
            foreign->corpus_bytes > 0 ? std::max(bytes, foreign->corpus_bytes) : 0};
  if (head.find('\0') == std::string::npos) return {.format = &format};
  if (!has_name_of(format, path)) return {"binary"};
  return {"text with a NUL byte", "has a NUL byte; remove it: tr -d '\\000'", bytes};
}

// Error for a file in a format without a reader.
const DocumentFormat* required_format(const fs::path& path) {
  const std::string head = head_of_file(path);
  const DocumentFormat& format = format_of_file(path, head);
  const auto foreign = foreign_format(head);
  if (format.is_text && foreign) fail("{}: {}", path.string(), describe(*foreign, path));
  return &format;
}

// Returns the objects of a URL, which is one's own, a pattern, or a folder with all below it.
std::vector<ObjectInfo> objects_of(const std::string& url) {
  BaseStorage& store = storage_of(url);
  if (const std::optional<ObjectInfo> file = store.find(url)) return {*file};
  const size_t wild = url.find_first_of(kWild);
  std::vector<ObjectInfo> objects =
      store.list(wild == std::string::npos ? url + '/' : url.substr(0, wild));
  if (wild != std::string::npos)
    std::erase_if(objects, [&](const ObjectInfo& object) {
      return ::fnmatch(url.c_str(), object.url.c_str(), FNM_PATHNAME | FNM_PERIOD) != 0;
    });
  return objects;
}

// Returns whether a part of a name below a folder is hidden.
bool is_hidden(const fs::path& name) {
  return std::ranges::any_of(name,
                             [](const fs::path& part) { return part.string().starts_with('.'); });
}

// Returns why a folder is not searched: a program writes its files. "" if it is searched.
std::string reason_of_folder(const fs::path& folder) {
  if (fs::exists(folder / "hparams.toml")) return "the directory of a run";
  if (fs::exists(folder / "CMakeCache.txt")) return "a build folder";
  return "";
}

// Collects files, each once.
class Finder {
 public:
  // `excluded`: names of folders of Tessera's own sources, in which no links are followed.
  explicit Finder(std::set<std::string> excluded = {}) : excluded_(std::move(excluded)) {}

  // Adds the objects of a URL. The first bytes of one are read only if its name says nothing.
  void add_url(const std::string& url, bool may_be_tokens) {
    const std::vector<ObjectInfo> objects = objects_of(url);
    if (objects.empty()) fail("{}: no such file or folder, and no file matches it", url);
    const bool is_folder = objects[0].url.starts_with(url + '/');
    for (const ObjectInfo& object : objects) {
      const fs::path path = object.url;
      TextFile file{
          path,        is_folder ? object.url.substr(url.size() + 1) : path.filename().string(),
          object.url,  nullptr,
          object.size, object.etag};
      const bool is_tokens = lower_extension(path) == ".bin";
      if (object.url.ends_with('/') || (is_folder && is_hidden(file.name))) {
        refuse(path, {"hidden"});
        continue;
      }
      if (is_folder && is_tokens) {
        refuse(path, {"a token file (.bin)"});
        continue;
      }
      if (!may_be_tokens && !is_tokens) {
        const DocumentFormat& by_name = format_of_file(path, "");
        file.format = has_name_of(by_name, path) ? &by_name : required_format(path);
      }
      files_.try_emplace(object.url, std::move(file));
    }
  }

  void add_file(const fs::path& path, const std::string& name, const DocumentFormat* format) {
    const std::string id = identity(path);
    const auto [found, is_new] = files_.try_emplace(id, TextFile{path, name, id, format});
    if (is_new) return;
    refuse(path, {"a file that is read already"});
    // The files of a hub's cache have names only as links.
    if (path.has_extension() && !found->second.path.has_extension())
      found->second = {path, name, id, format};
  }

  void add_folder(const fs::path& folder, const fs::path& root) {
    if (!visited_.insert(fs::canonical(folder)).second) return;
    std::error_code error;
    std::vector<fs::path> entries;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error))
      entries.push_back(entry->path());
    if (error)
      fail("{}: cannot read the folder: {}; name the files to read", folder.string(),
           error.message());
    std::ranges::sort(entries);
    for (const fs::path& entry : entries) add_entry(entry, root);
  }

  TextFiles found() const {
    TextFiles found;
    for (const auto& [unused, file] : files_) found.files.push_back(file);
    std::ranges::sort(found.files, {}, &TextFile::path);
    for (const auto& [reason, paths] : refused_)
      found.left_out +=
          fmt::format("{}{}: {} ({}{})", found.left_out.empty() ? "left out: " : ", ", reason,
                      paths.size(), paths[0].string(), paths.size() > 1 ? ", …" : "");
    return found;
  }

  // Throws an Error if the folders hold more data in other formats than text.
  void require_text(const std::vector<std::string>& paths) const {
    int64_t text = 0, data = 0;
    for (const auto& [unused, file] : files_)
      text +=
          is_url(file.path) ? file.object_bytes : static_cast<int64_t>(fs::file_size(file.path));
    for (const auto& [file, bytes] : data_) data += files_.contains(file) ? 0 : bytes;
    if (data > text || (files_.empty() && !refused_.empty()))
      fail("{}: {} files with {} bytes are text; {}{}", fmt::join(paths, ", "), files_.size(), text,
           found().left_out,
           advice_.empty() ? "" : fmt::format(". {}; or name the files to read", advice_));
  }

 private:
  // Returns a path without links; for a file of several names, its number.
  static std::string identity(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && status.st_nlink > 1)
      return fmt::format("{}:{}", status.st_dev, status.st_ino);
    return fs::canonical(path).string();
  }

  void refuse(const fs::path& path, const Refusal& refusal) {
    refused_[refusal.reason].push_back(path);
    if (refusal.data_bytes == 0) return;
    data_[identity(path)] = refusal.data_bytes;
    if (advice_.empty()) advice_ = fmt::format("{} {}", path.string(), refusal.advice);
  }

  void add_entry(const fs::path& path, const fs::path& root) {
    const std::string name = path.filename().string();
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    if (!excluded_.empty() && (fs::is_symlink(path) || excluded_.contains(name))) return;
    if (name.starts_with('.')) return refuse(path, {"hidden"});
    if (fs::is_directory(status)) {
      const std::string reason = reason_of_folder(path);
      return reason.empty() ? add_folder(path, root) : refuse(path, {reason});
    }
    if (!fs::is_regular_file(status))
      return refuse(path, {fs::exists(status) ? "not a regular file" : "a link to nothing"});
    const Refusal refusal = refusal_of_file(path);
    if (!refusal.reason.empty()) return refuse(path, refusal);
    add_file(path, path.lexically_relative(root).generic_string(), refusal.format);
  }

  std::set<std::string> excluded_;
  std::map<std::string, TextFile> files_;                 // By identity.
  std::set<fs::path> visited_;                            // Folders.
  std::map<std::string, std::vector<fs::path>> refused_;  // By reason.
  std::map<std::string, int64_t> data_;  // Bytes of data that the user probably means, by identity.
  std::string advice_;                   // How to read the first of them.
};

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
  if (is_url(pattern)) {
    for (const ObjectInfo& object : objects_of(pattern)) paths.emplace_back(object.url);
    return paths;
  }
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::ranges::sort(paths);  // By bytes, in any locale.
  return paths;
}

TextFiles find_text_files(const std::vector<std::string>& paths, bool may_be_tokens) {
  Finder finder;
  for (const std::string& given : paths) {
    const std::string path = path_or_url(given, "input path");
    if (is_url(path)) {
      finder.add_url(path, may_be_tokens);
      continue;
    }
    std::vector<fs::path> named = {path};
    if (!fs::exists(path)) named = matching_files(path);
    if (named.empty())
      fail("{}: no such file or directory, and no file matches it as a pattern{}", path,
           path == "-" ? "; standard input is not read: write the text to a file" : "");
    for (const fs::path& one : named) {
      if (fs::is_directory(one)) {
        finder.add_folder(one, one);
        continue;
      }
      require_regular_file(one);
      const bool is_tokens = may_be_tokens || lower_extension(one) == ".bin";
      finder.add_file(one, one.filename().string(), is_tokens ? nullptr : required_format(one));
    }
  }
  finder.require_text(paths);
  return finder.found();
}

std::vector<TextFile> tessera_source_files() {
  static const std::set<std::string> kSuffixes = {".h", ".cc", ".md", ".py", ".cmake", ".sh"};
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (!error && folder.has_relative_path()) {
    folder = folder.parent_path();
    if (!fs::exists(folder / "core/graph/graph.h") || !fs::exists(folder / "CMakeLists.txt"))
      continue;
    Finder finder({"build", "runs", "__pycache__"});
    finder.add_folder(folder, folder);
    std::vector<TextFile> files = finder.found().files;
    std::erase_if(files, [](const TextFile& file) {
      return !kSuffixes.contains(file.path.extension().string());
    });
    return files;
  }
  return {};
}

}  // namespace tessera
