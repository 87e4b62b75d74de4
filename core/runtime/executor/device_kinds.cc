// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/device_kinds.h"

#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/devices/reference/device.h"
#include "core/runtime/comm/cpu_communicator.h"

namespace tessera {
namespace {

DeviceKind host_kind(decltype(DeviceKind::make_devices) make_devices) {
  return {.make_devices = make_devices,
          .make_communicator = make_cpu_communicator,
          .collective_needs = cpu_collective_needs,
          .has_all_numerics = true};
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, DeviceKind, std::less<>> kinds = {
      {"cpu", host_kind(make_cpu_devices)}, {"reference", host_kind(make_reference_devices)}};
};

// Never destroyed, as plugins are never unloaded.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

void register_device_kind(std::string_view name, const DeviceKind& kind) {
  const std::lock_guard lock(registry().mutex);
  registry().kinds.insert_or_assign(std::string(name), kind);
}

std::vector<std::string> registered_device_kinds() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, kind] : registry().kinds)
    if (kind.make_devices != nullptr) names.push_back(name);
  return names;
}

const DeviceKind& find_device_kind(std::string_view name) {
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().kinds.find(name);
    if (found != registry().kinds.end()) return found->second;
  }
  const std::vector<std::string> names = registered_device_kinds();
  fail("unknown kind of device '{}'{}; expected {}", name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

}  // namespace tessera
