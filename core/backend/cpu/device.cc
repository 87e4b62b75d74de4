// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/device.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/backend/cpu/arena.h"
#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/peak_flops.h"
#include "core/backend/cpu/registry.h"
#include "core/backend/cpu/stream.h"
#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, int64_t sharers)
      : level_(cpu_level()), pool_(threads), sharers_(sharers) {}

  std::string_view kind() const override { return "cpu"; }
  std::string description() const override {
    const CpuLevel highest = machine_levels().back();
    const std::string lowered =
        level_ == highest
            ? ""
            : fmt::format(" (lowered from {} by {})", level_name(highest), kLevelVariable);
    const std::string processor = processor_name();
    return fmt::format("cpu: {} thread{}, {}{}{}{}", pool_.size(), pool_.size() == 1 ? "" : "s",
                       level_name(level_), lowered, processor.empty() ? "" : " on ", processor);
  }
  double peak_flops(DType dtype) const override { return cpu_peak_flops(dtype, pool_); }

  int64_t available_bytes() const override { return available_memory() / sharers_; }
  DeviceAddress allocate(int64_t bytes) override {
    return address_of(allocate_pages(bytes, pool_));
  }
  void release(DeviceAddress memory, int64_t bytes) override {
    release_pages(pointer_to(memory), bytes);
  }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    const KernelFactory factory = find_kernel(*node.op);
    if (factory == nullptr) {
      fail("{}: the CPU backend has no kernel for op '{}' [in {}]", node.site.text(), node.op->name,
           node.path.empty() ? "the step" : node.path);
    }
    return factory(graph, node, pool_);
  }
  bool has_kernel(const OpDef& op) const override { return find_kernel(op) != nullptr; }

  // Compute is done by the caller. Collectives run beside it, on a thread of their own.
  std::unique_ptr<Stream> make_stream(StreamUse use) override {
    return use == StreamUse::kCommunication ? make_thread_stream() : make_inline_stream();
  }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }

  void map(DeviceAddress memory, int64_t bytes, HostAccess, const UseBytes& use) override {
    use({pointer_to(memory), static_cast<size_t>(bytes)});
  }

 private:
  CpuLevel level_;  // Chosen before the first kernel is.
  mutable ThreadPool pool_;
  int64_t sharers_;  // Devices that share the host's memory, this one included.
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads, 1);
}

std::vector<std::unique_ptr<Device>> make_cpu_devices(int64_t count, int threads) {
  const int64_t budget = threads > 0 ? threads : usable_cpu_threads();
  std::vector<std::unique_ptr<Device>> devices;
  const auto each = static_cast<int>(std::max<int64_t>(1, budget / count));
  for (int64_t i = 0; i < count; ++i) devices.push_back(std::make_unique<CpuDevice>(each, count));
  return devices;
}

int usable_cpu_threads() { return usable_processors(); }

}  // namespace tessera
