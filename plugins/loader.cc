// SPDX-License-Identifier: Apache-2.0
#include "plugins/loader.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include <boost/dll/runtime_symbol_info.hpp>
#include <boost/dll/shared_library.hpp>
#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "tessera_stamp.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

// Removes the path at the beginning of dlopen's text, which our message already has.
std::string reason_of(const boost::system::system_error& error, const filesystem::path& file) {
  std::string text = error.what();
  const std::string doubled = file.string() + ": ";
  const size_t at = text.rfind(doubled);
  if (at != std::string::npos) text = text.substr(at + doubled.size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_NONE;
#endif

template <typename T>
std::optional<T> read_at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Checks that every segment is in the file: mapping a truncated library kills the process with
// SIGBUS.
bool is_whole(std::string_view bytes, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; ++i) {
    const auto segment =
        read_at<Elf64_Phdr>(bytes, header.e_phoff + static_cast<uint64_t>(i) * sizeof(Elf64_Phdr));
    if (!segment) return false;
    if (segment->p_offset > bytes.size() || bytes.size() - segment->p_offset < segment->p_filesz)
      return false;
  }
  const uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  return header.e_phnum > 0 && header.e_shoff <= bytes.size() &&
         bytes.size() - header.e_shoff >= sections;
}

std::optional<std::string> find_stamp(std::string_view bytes) {
  const std::string_view marker = kStampMarker;
  const size_t at = bytes.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = bytes.substr(at + marker.size(), 256);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(rest.substr(0, end));
}

// Returns the file's checksum. Error, with the file and both stamps, unless it is a complete shared
// library for this machine with our stamp.
uint32_t check_plugin_file(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
    fail("{}: not a shared library", file.string());
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachine ||
      header->e_type != ET_DYN)
    fail("{}: not a shared library for this kind of machine", file.string());
  if (!is_whole(bytes, *header)) fail("{}: the file is truncated; build it again", file.string());
  const auto stamp = find_stamp(bytes);
  if (!stamp)
    fail("{}: not a Tessera plugin (it has no build stamp; make it with tessera_plugin())",
         file.string());
  if (*stamp != build_stamp())
    fail("{}: plugin of another build: got Tessera {}, expected {}; build the plugin again",
         file.string(), *stamp, build_stamp());
  return crc32c(std::as_bytes(std::span(bytes)));
}

struct Opened {
  boost::dll::shared_library library;
  uint32_t checksum = 0;
};

// Never destroyed: objects made by a plugin may outlive main.
std::map<filesystem::path, Opened>& opened_plugins() {
  static auto* const opened = new std::map<filesystem::path, Opened>;
  return *opened;
}

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

std::string_view build_stamp() {
  return std::string_view(kPluginStamp).substr(kStampMarker.size());
}

// Relative to this library, which works in build trees and installations.
filesystem::path own_plugins(std::string_view kind) {
  boost::system::error_code error;
  const auto library = boost::dll::this_line_location(error);
  if (error) return filesystem::path("tessera") / kind;
  return filesystem::weakly_canonical(library.string()).parent_path() / "tessera" / kind;
}

std::vector<filesystem::path> plugin_path(const std::vector<filesystem::path>& given) {
  std::vector<filesystem::path> path;
  for (const filesystem::path& place : given) {
    if (!filesystem::exists(place))
      fail("--plugin_path={}: no such folder or library", place.string());
    path.push_back(place);
  }
  if (const char* variable = std::getenv("TESSERA_PLUGIN_PATH")) {
    std::istringstream places(variable);
    for (std::string place; std::getline(places, place, ':');) {
      if (place.empty()) continue;
      if (!filesystem::exists(place)) fail("TESSERA_PLUGIN_PATH: no such folder: {}", place);
      path.emplace_back(place);
    }
  }
  path.push_back(own_plugins("experiments"));
  return path;
}

std::vector<filesystem::path> find_plugins(const std::vector<filesystem::path>& path) {
  std::vector<filesystem::path> files;
  for (const filesystem::path& place : path) {
    std::vector<filesystem::path> here;
    if (filesystem::is_directory(place)) {
      for (const auto& entry : filesystem::directory_iterator(place))
        if (entry.path().extension() == ".so") here.push_back(entry.path());
    } else if (filesystem::exists(place)) {
      here.push_back(place);
    }
    std::sort(here.begin(), here.end());
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

void load_plugin(const filesystem::path& file) {
  if (!filesystem::exists(file)) fail("{}: no such plugin", file.string());
  const filesystem::path whole = filesystem::canonical(file);
  if (opened_plugins().contains(whole)) return;
  const uint32_t checksum = check_plugin_file(file);
  const LoadingPlugin scope(whole.string());
  try {
    boost::dll::shared_library library(whole.string(), boost::dll::load_mode::rtld_now);
    opened_plugins().emplace(whole, Opened{std::move(library), checksum});
  } catch (const boost::system::system_error& error) {
    fail("{}: the plugin cannot be loaded: {}", file.string(), reason_of(error, whole));
  }
}

std::vector<LoadedPlugin> loaded_plugins() {
  std::vector<LoadedPlugin> loaded;
  for (const auto& [file, opened] : opened_plugins()) loaded.push_back({file, opened.checksum});
  return loaded;
}

std::vector<std::string> load_plugins(const std::vector<filesystem::path>& files) {
  std::vector<std::string> problems;
  for (const filesystem::path& file : files) {
    try {
      load_plugin(file);
    } catch (const std::exception& error) {
      problems.push_back(error_text(error));
    }
  }
  return problems;
}

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
