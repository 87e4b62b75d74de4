// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/transport.h"

#include <map>
#include <mutex>
#include <vector>

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

bool WaitDeadline::poll(Clock::time_point now) {
  if (now - last_poll_ >= kSuspended) {
    suspended_ += std::chrono::duration_cast<std::chrono::milliseconds>(now - last_poll_);
    begin_ = now;
  }
  last_poll_ = now;
  return now - begin_ >= timeout_;
}

void WaitDeadline::resume(Clock::time_point now) {
  if (now - last_poll_ >= kSuspended) begin_ += now - last_poll_;
  last_poll_ = now;
}

std::string WaitDeadline::suspension_note() const {
  if (suspended_.count() == 0) return "";
  return fmt::format(" (this process itself was suspended for {:.1f} s)",
                     static_cast<double>(suspended_.count()) / 1000.0);
}

void keep_until_exit(std::shared_ptr<void> objects) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(objects));
}

int local_rank(const Transport* transport) {
  int lower = 0;
  for (int rank = 0; transport != nullptr && rank < transport->rank(); ++rank)
    lower += transport->host(rank) == transport->host(transport->rank()) ? 1 : 0;
  return lower;
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
