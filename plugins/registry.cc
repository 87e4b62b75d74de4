// SPDX-License-Identifier: Apache-2.0
#include "plugins/registry.h"

#include <map>
#include <mutex>
#include <utility>

#include <fmt/core.h>

namespace tessera {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, ExperimentEntry> entries;
  std::vector<std::string> clashes;
  std::string loading;
};

// Never destroyed, since plugins are never unloaded.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

std::string place(const std::string& plugin) { return plugin.empty() ? "this program" : plugin; }

}  // namespace

void register_experiment(ExperimentEntry entry) {
  const std::lock_guard lock(registry().mutex);
  entry.plugin = registry().loading;
  const std::string name = entry.name;
  const std::string plugin = entry.plugin;
  const auto [at, is_new] = registry().entries.try_emplace(name, std::move(entry));
  if (!is_new)
    registry().clashes.push_back(
        fmt::format("experiment '{}' is registered twice: in {} and in {}; rename one of them",
                    name, place(at->second.plugin), place(plugin)));
}

std::vector<ExperimentEntry> registered_experiments() {
  const std::lock_guard lock(registry().mutex);
  std::vector<ExperimentEntry> entries;
  for (const auto& [name, entry] : registry().entries) entries.push_back(entry);
  return entries;
}

std::vector<std::string> experiment_clashes() {
  const std::lock_guard lock(registry().mutex);
  return registry().clashes;
}

LoadingPlugin::LoadingPlugin(std::string plugin) {
  const std::lock_guard lock(registry().mutex);
  registry().loading = std::move(plugin);
}

LoadingPlugin::~LoadingPlugin() {
  const std::lock_guard lock(registry().mutex);
  registry().loading.clear();
}

}  // namespace tessera
