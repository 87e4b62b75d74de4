// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/transport_registry.h"

#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, MakeTransport, std::less<>> kinds;
};

// Never destroyed, as plugins are never unloaded.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

void register_transport(std::string_view name, MakeTransport make) {
  const std::lock_guard lock(registry().mutex);
  registry().kinds.insert_or_assign(std::string(name), make);
}

std::vector<std::string> registered_transports() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, make] : registry().kinds) names.push_back(name);
  return names;
}

std::shared_ptr<Transport> make_transport(std::string_view name) {
  MakeTransport make = nullptr;
  {
    const std::lock_guard lock(registry().mutex);
    const auto at = registry().kinds.find(name);
    if (at != registry().kinds.end()) make = at->second;
  }
  if (make == nullptr) {
    const std::vector<std::string> names = registered_transports();
    fail("no transport '{}' is loaded; there {}{}", name, names.empty() ? "is none" : "are ",
         fmt::join(names, ", "));
  }
  return make();
}

}  // namespace tessera
