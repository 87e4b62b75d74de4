// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/library.h"

#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

// Whether the file exists; false if that cannot be checked.
bool is_there(const filesystem::path& file) {
  std::error_code ignored;
  return filesystem::exists(file, ignored);
}

// Prefixes of the Python environments that python3 may belong to, in the order of library_files().
std::vector<filesystem::path> python_prefixes() {
  std::vector<filesystem::path> prefixes;
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* const prefix = std::getenv(variable)) prefixes.emplace_back(prefix);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string name; std::getline(folders, name, ':');) {
    const filesystem::path folder(name);
    // Nothing is loaded from below the current directory.
    if (!folder.is_absolute() || !is_there(folder / "python3")) continue;
    const filesystem::path prefix = folder.parent_path();
    prefixes.push_back(prefix);
    prefixes.push_back(prefix / "local");  // Debian's pip installs there.
    break;
  }
  return prefixes;
}

// The subfolders of `folder`, in the order of their names; none if it does not exist.
std::vector<filesystem::path> subfolders(const filesystem::path& folder) {
  std::error_code ignored;
  std::vector<filesystem::path> found;
  for (const auto& entry : filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::vector<filesystem::path> wheel_folders() {
  std::vector<filesystem::path> folders;
  for (const filesystem::path& prefix : python_prefixes())
    for (const filesystem::path& python : subfolders(prefix / "lib"))
      for (const char* const packages : {"site-packages", "dist-packages"})
        for (const filesystem::path& wheel : subfolders(python / packages / "nvidia"))
          folders.push_back(wheel / "lib");
  return folders;
}

struct LoadedLibraries {
  std::mutex mutex;
  std::map<std::string, std::string> texts;  // By name.
};
LoadedLibraries& loaded_libraries() {
  static auto* const instance = new LoadedLibraries;
  return *instance;
}

}  // namespace

std::vector<std::string> library_files(const std::string& file, const char* variable) {
  if (const char* const named = std::getenv(variable)) return {named};
  std::vector<std::string> files = {file};
  if (const char* const home = std::getenv("CUDA_HOME"))
    files.push_back(fmt::format("{}/lib64/{}", home, file));
  files.push_back("/usr/local/cuda/lib64/" + file);
  for (const filesystem::path& folder : wheel_folders())
    if (is_there(folder / file)) files.push_back((folder / file).string());
  return files;
}

Library::Library(const std::vector<std::string>& files) {
  std::string reason;
  for (const std::string& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      link_map* map = nullptr;
      const bool is_known = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name != '\0';
      file_ = is_known ? map->l_name : file;
      return;
    }
    reason = dlerror();
  }
  if (files.size() == 1) fail("{}", reason);
  fail("none of {} can be loaded", fmt::join(files, ", "));
}

void note_library(std::string_view name, std::string_view version, const Library& library) {
  const std::lock_guard lock(loaded_libraries().mutex);
  loaded_libraries().texts[std::string(name)] =
      fmt::format("{} {} from {}", name, version, library.file());
}

std::string noted_libraries() {
  const std::lock_guard lock(loaded_libraries().mutex);
  std::vector<std::string> all;
  for (const auto& [name, text] : loaded_libraries().texts) all.push_back(text);
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace tessera::cuda
