// SPDX-License-Identifier: Apache-2.0
#include "plugins/lookup.h"

#include <algorithm>
#include <ranges>
#include <set>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "plugins/loader.h"

namespace tessera {
namespace {

bool has_suffix(std::string_view name, std::string_view suffix) {
  if (name == suffix) return true;
  return name.size() > suffix.size() && name.ends_with(suffix) &&
         name[name.size() - suffix.size() - 1] == '.';
}

// What Pax calls the experiment: the word after "Pax's" with which its summary begins, in which "/"
// separates several names; or nothing.
std::vector<std::string> pax_names(const ExperimentEntry& entry) {
  constexpr std::string_view kBegin = "Pax's ";
  std::vector<std::string> names;
  if (!entry.summary.starts_with(kBegin)) return names;
  const std::string_view rest = std::string_view(entry.summary).substr(kBegin.size());
  for (const auto name : std::views::split(rest.substr(0, rest.find_first_of(" ,:;")), '/'))
    names.emplace_back(name.begin(), name.end());
  return names;
}

// The last parts of a dotted name, as many as `like` has.
std::string tail_like(const std::string& name, std::string_view like) {
  const auto dots = std::count(like.begin(), like.end(), '.');
  size_t begin = name.size();
  for (auto i = dots; i >= 0 && begin != std::string::npos && begin > 0; --i)
    begin = name.rfind('.', begin - 1);
  return begin == std::string::npos || begin == 0 ? name : name.substr(begin + 1);
}

std::vector<std::string> near_names(std::string_view name,
                                    const std::vector<ExperimentEntry>& entries) {
  std::vector<std::string> near;
  for (const ExperimentEntry& entry : entries) {
    const std::string last = entry.name.substr(entry.name.rfind('.') + 1);
    const std::string wanted(name.substr(name.rfind('.') + 1));
    std::vector<std::string> names = pax_names(entry);
    names.push_back(last);
    if (!nearest(name, {tail_like(entry.name, name)}).empty() || !nearest(wanted, names).empty())
      near.push_back(entry.name);
  }
  return near;
}

// The plugins that the user names: the configuration may use their classes.
std::vector<std::filesystem::path> given_plugins(std::vector<std::filesystem::path> path) {
  std::erase(path, own_plugins("experiments"));
  return find_plugins(path);
}

void fail_on_clashes() {
  const std::vector<std::string> clashes = experiment_clashes();
  if (!clashes.empty()) fail("{}", clashes.front());
  const std::vector<std::string> templates = template_clashes();
  if (!templates.empty()) fail("{}", templates.front());
}

// The entry called `name`, or the only one whose dotted name ends in it, or whose name in Pax, with
// or without its module. Error with near names, or with all matches if there are several.
ExperimentEntry match_experiment(std::string_view name,
                                 const std::vector<ExperimentEntry>& entries) {
  std::vector<std::string> matches;
  const ExperimentEntry* match = nullptr;
  for (const ExperimentEntry& entry : entries) {
    if (entry.name == name) return entry;
    const bool is_pax = std::ranges::any_of(
        pax_names(entry), [&](const std::string& pax) { return has_suffix(name, pax); });
    if (!has_suffix(entry.name, name) && !is_pax) continue;
    match = &entry;
    matches.push_back(entry.name);
  }
  if (matches.size() == 1) return *match;
  if (matches.size() > 1)
    fail("--exp={} is ambiguous: {}; give more of the name", name, fmt::join(matches, " or "));
  std::vector<std::string> of_family;
  for (const ExperimentEntry& entry : entries)
    if (entry.name.starts_with(fmt::format("{}.", name))) of_family.push_back(entry.name);
  if (!of_family.empty())
    fail("'{}' is a family; its experiments are {}", name, fmt::join(of_family, ", "));
  const std::vector<std::string> near = near_names(name, entries);
  if (!near.empty())
    fail("no experiment '{}'; did you mean '{}'?", name, fmt::join(near, "' or '"));
  fail("no experiment '{}'; --list shows all {}", name, entries.size());
}

// The kind that the user may have meant. By spelling alone, "gpu" would be near "cpu".
std::string kind_meant(const std::string& name, const std::vector<std::string>& known) {
  const bool is_gpu = name == "gpu" || name == "GPU" || name == "nvidia";
  if (!is_gpu) return did_you_mean(name, known);
  return std::ranges::find(known, "cuda") == known.end() ? "; this build has no device for GPUs"
                                                         : "; did you mean 'cuda'?";
}

}  // namespace

ExperimentEntry find_experiment(std::string_view name,
                                const std::vector<std::filesystem::path>& path) {
  const std::vector<std::filesystem::path> files = find_plugins(path);
  const std::string family = family_of(name);
  for (const std::filesystem::path& file : files)
    if (file.stem() == family) load_plugin(file);
  load_plugins(given_plugins(path));
  fail_on_clashes();
  for (const ExperimentEntry& entry : registered_experiments())
    if (entry.name == name) return entry;

  const std::vector<std::string> problems = load_plugins(files);
  fail_on_clashes();
  try {
    return match_experiment(name, registered_experiments());
  } catch (const Error& error) {
    // The experiment may be in a plugin that failed to load, or in another folder.
    std::string more;
    if (!problems.empty()) more = fmt::format(" (not loaded: {})", fmt::join(problems, "; "));
    for (const std::filesystem::path& place : path)
      if (find_plugins({place}).empty())
        more += fmt::format(" (the folder {} has no plugins)", place.string());
    if (more.empty()) throw;
    fail("{}{}", error.what(), more);
  }
}

std::string plugins_not_loaded(const std::vector<std::filesystem::path>& path) {
  const std::vector<std::string> problems = load_plugins(given_plugins(path));
  return problems.empty() ? "" : fmt::format(" (not loaded: {})", fmt::join(problems, "; "));
}

std::string family_of(std::string_view experiment) {
  return std::string(experiment.substr(0, experiment.find('.')));
}

const DeviceKind& find_device(const std::string& name,
                              const std::vector<std::filesystem::path>& path,
                              std::string_view flag) {
  const auto is_registered = [&] {
    const std::vector<std::string> kinds = registered_device_kinds();
    return std::find(kinds.begin(), kinds.end(), name) != kinds.end();
  };
  std::vector<std::filesystem::path> folders = path;
  folders.push_back(own_plugins("devices"));
  for (const std::filesystem::path& file : find_plugins(folders))
    if (file.stem() == name && !is_registered()) load_plugin(file);
  if (!is_registered()) {
    const std::vector<std::string> known = known_device_kinds();
    fail("{}{}: unknown kind of device{}; expected {}", flag, name, kind_meant(name, known),
         fmt::join(known, " or "));
  }
  return find_device_kind(name);
}

std::vector<std::string> known_device_kinds() {
  const std::vector<std::string> registered = registered_device_kinds();
  std::set<std::string> names(registered.begin(), registered.end());
  for (const std::filesystem::path& file : find_plugins({own_plugins("devices")}))
    names.insert(file.stem());
  return {names.begin(), names.end()};
}

}  // namespace tessera
