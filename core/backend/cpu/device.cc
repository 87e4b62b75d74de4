// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/backend/cpu/arena.h"
#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/peak_flops.h"
#include "core/backend/cpu/registry.h"
#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : level_(cpu_level()), team_(threads) {}

  std::string_view kind() const override { return "cpu"; }
  std::string description() const override {
    const CpuLevel highest = machine_levels().back();
    const std::string lowered =
        level_ == highest
            ? ""
            : fmt::format(" (lowered from {} by {})", level_name(highest), kLevelVariable);
    const std::string processor = processor_name();
    return fmt::format("cpu: {} thread{}, {}{}{}{}", team_.size(), team_.size() == 1 ? "" : "s",
                       level_name(level_), lowered, processor.empty() ? "" : " on ", processor);
  }
  double peak_flops(DType dtype) const override { return cpu_peak_flops(dtype, team_); }

  std::byte* allocate(int64_t bytes) override { return allocate_pages(bytes, team_); }
  void release(std::byte* memory, int64_t bytes) override { release_pages(memory, bytes); }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    const KernelFactory factory = find_kernel(node.op->name);
    if (factory == nullptr) {
      fail("{}: the CPU backend has no kernel for op '{}' [in {}]", node.site.text(), node.op->name,
           node.path.empty() ? "the step" : node.path);
    }
    return factory(graph, node, team_);
  }
  bool has_kernel(std::string_view op) const override { return find_kernel(op) != nullptr; }

  void write(std::byte* destination, std::span<const std::byte> source) override {
    if (!source.empty()) std::memcpy(destination, source.data(), source.size());
  }
  void read(std::span<std::byte> destination, const std::byte* source) override {
    if (!destination.empty()) std::memcpy(destination.data(), source, destination.size());
  }

 private:
  CpuLevel level_;  // Chosen before the first kernel is.
  mutable ThreadPool team_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

std::vector<std::unique_ptr<Device>> make_cpu_devices(int64_t count, int threads) {
  const int64_t budget = threads > 0 ? threads : usable_cpu_threads();
  std::vector<std::unique_ptr<Device>> devices;
  for (int64_t i = 0; i < count; ++i)
    devices.push_back(make_cpu_device(static_cast<int>(std::max<int64_t>(1, budget / count))));
  return devices;
}

int usable_cpu_threads() { return usable_processors(); }

}  // namespace tessera
