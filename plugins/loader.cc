// SPDX-License-Identifier: Apache-2.0
#include "plugins/loader.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <boost/dll/runtime_symbol_info.hpp>
#include <boost/dll/shared_library.hpp>

#include "core/base/error.h"
#include "plugins/build_stamp.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

// Never destroyed: objects made by a plugin may outlive main.
struct Opened {
  std::set<filesystem::path> files;
  std::vector<boost::dll::shared_library> libraries;
};

Opened& opened() {
  static auto* instance = new Opened;
  return *instance;
}

// Removes the path at the beginning of dlopen's text, which our message already has.
std::string reason_of(const boost::system::system_error& error, const filesystem::path& file) {
  std::string text = error.what();
  const std::string doubled = file.string() + ": ";
  const size_t at = text.rfind(doubled);
  if (at != std::string::npos) text = text.substr(at + doubled.size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

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
      fail("--plugin_path={}: there is no such folder or library", place.string());
    path.push_back(place);
  }
  if (const char* variable = std::getenv("TESSERA_PLUGIN_PATH")) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      const filesystem::path place = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (place.empty()) continue;
      if (!filesystem::exists(place))
        fail("TESSERA_PLUGIN_PATH: there is no folder {}", place.string());
      path.push_back(place);
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
  if (!filesystem::exists(file)) fail("{}: there is no such plugin", file.string());
  const filesystem::path whole = filesystem::canonical(file);
  if (opened().files.contains(whole)) return;
  check_plugin_file(file);
  const LoadingPlugin scope(whole.string());
  try {
    opened().libraries.emplace_back(whole.string(), boost::dll::load_mode::rtld_now);
  } catch (const boost::system::system_error& error) {
    fail("{}: the plugin cannot be loaded: {}", file.string(), reason_of(error, whole));
  }
  opened().files.insert(whole);
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

}  // namespace tessera
