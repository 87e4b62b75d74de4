// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/transport.h"

#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

struct TransportRegistry {
  std::mutex mutex;
  std::map<std::string, MakeTransport, std::less<>> makers;
};

// Never destroyed, since plugins are never unloaded.
TransportRegistry& transport_registry() {
  static auto* instance = new TransportRegistry;
  return *instance;
}

}  // namespace

void keep_until_exit(std::shared_ptr<void> requests) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(requests));
}

void register_transport(std::string_view name, MakeTransport make) {
  TransportRegistry& registry = transport_registry();
  const std::lock_guard lock(registry.mutex);
  registry.makers.insert_or_assign(std::string(name), make);
}

std::shared_ptr<Transport> make_transport(std::string_view name) {
  TransportRegistry& registry = transport_registry();
  std::unique_lock lock(registry.mutex);
  const auto found = registry.makers.find(name);
  if (found == registry.makers.end()) {
    std::vector<std::string> names;
    for (const auto& [known, make] : registry.makers) names.push_back(known);
    fail("no transport '{}' is loaded; loaded: {}", name,
         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  const MakeTransport make = found->second;
  lock.unlock();
  return make();
}

}  // namespace tessera
