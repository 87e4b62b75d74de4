// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/devices/cpu/processor.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

// Whether the node has f64 elements, also between operands and results of integers.
bool has_f64(const Graph& graph, const Node& node) {
  const auto is_f64 = [&](ValueId value) { return graph.type(value).dtype == DType::kF64; };
  const auto computes_f64 = [](const std::shared_ptr<const Graph>& body) {
    return std::ranges::any_of(body->nodes(),
                               [&](const Node& inner) { return has_f64(*body, inner); });
  };
  return std::ranges::any_of(node.inputs, is_f64) || std::ranges::any_of(node.outputs, is_f64) ||
         std::ranges::any_of(node.bodies, computes_f64);
}

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
    if (has_f64(graph, node)) return f64_kernel_factory()(graph, node);
    const KernelFactory factory = find_kernel(*node.op);
    if (factory == nullptr)
      fail("{}: the CPU backend has no kernel for op '{}' [in {}]", node.site.text(), node.op->name,
           node.path.empty() ? "the step" : node.path);
    return factory(graph, node, pool_);
  }
  bool has_kernel(const OpDef& op) const override { return find_kernel(op) != nullptr; }

  // The caller's thread computes. Collectives run concurrently, on a thread of their own.
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
  int64_t sharers_;  // Devices that share the host's memory, including this one.
};

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t round_up(int64_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Returns the number in a small kernel file; `otherwise` for "max", or if the file does not exist.
int64_t number_in(const std::filesystem::path& file, int64_t otherwise) {
  std::ifstream in(file);
  int64_t number = 0;
  return in >> number ? number : otherwise;
}

// Returns the number after `key` at the start of a line of such a file.
int64_t number_after(std::string_view key, const std::filesystem::path& file, int64_t otherwise) {
  std::ifstream in(file);
  std::string name, rest;
  int64_t number = 0;
  while (in >> name >> number) {
    if (name == key) return number;
    std::getline(in, rest);
  }
  return otherwise;
}

// Returns the free memory, including memory that caches would release.
int64_t system_available() {
  return number_after("MemAvailable:", "/proc/meminfo", kUnlimited / 1024) * 1024;
}

// Returns the bytes that the control groups of this process allow: each level may set a limit.
int64_t group_available() {
  int64_t least = kUnlimited;
  const auto consider = [&](const std::filesystem::path& folder, const char* limit,
                            const char* used) {
    const int64_t most = number_in(folder / limit, kUnlimited);
    if (most == kUnlimited) return;
    // Inactive file pages count as used, but the kernel would release them first.
    const int64_t inactive = number_after("inactive_file", folder / "memory.stat", 0);
    const int64_t available = most - number_in(folder / used, 0) + inactive;
    least = std::min(least, std::max<int64_t>(0, available));
  };
  std::ifstream in("/proc/self/cgroup");  // Lines "0::/path" (v2), "4:memory:/path" (v1).
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool unified = second == first + 1;
    if (!unified && line.substr(first + 1, second - first - 1) != "memory") continue;
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::filesystem::path path = line.substr(second + 1);; path = path.parent_path()) {
      const std::filesystem::path folder = root / path.relative_path();
      if (unified) {
        consider(folder, "memory.max", "memory.current");
      } else {
        consider(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
      }
      if (path.relative_path().empty()) break;
    }
  }
  return least;
}

}  // namespace

F64KernelFactory& f64_kernel_factory() {
  static F64KernelFactory factory = nullptr;
  return factory;
}

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads, 1);
}

std::vector<std::unique_ptr<Device>> make_cpu_devices(int64_t count, int threads, int) {
  const int64_t budget = threads > 0 ? threads : usable_processors();
  std::vector<std::unique_ptr<Device>> devices;
  const auto each = static_cast<int>(std::max<int64_t>(1, budget / count));
  for (int64_t i = 0; i < count; ++i) devices.push_back(std::make_unique<CpuDevice>(each, count));
  return devices;
}

int64_t available_memory() {
  return std::min({system_available(), group_available(),
                   std::max<int64_t>(0, address_space_left() - kLeastAddressSpace)});
}

std::byte* allocate_pages(int64_t bytes, ThreadPool& pool) {
  const int64_t size = std::max(round_up(bytes), kHugePage);
  if (size > available_memory()) return nullptr;
  // One huge page more than needed, to find a boundary inside; the excess is unmapped.
  const int64_t mapped = size + kHugePage;
  void* const map = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  std::byte* const begin = static_cast<std::byte*>(map);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const int64_t skip = round_up(static_cast<int64_t>(address)) - static_cast<int64_t>(address);
  if (skip > 0) munmap(begin, static_cast<size_t>(skip));
  if (kHugePage - skip > 0) munmap(begin + skip + size, static_cast<size_t>(kHugePage - skip));
  std::byte* const memory = begin + skip;
  madvise(memory, static_cast<size_t>(size), MADV_HUGEPAGE);  // Small pages work too.
  pool.parallel(size / kHugePage, 1, [&](Range pages, int) {
    for (int64_t at = pages.begin * kHugePage; at < pages.end * kHugePage; at += 4096)
      *reinterpret_cast<volatile std::byte*>(memory + at) = std::byte{0};
  });
  return memory;
}

void release_pages(std::byte* memory, int64_t bytes) {
  if (memory == nullptr) return;
  munmap(memory, static_cast<size_t>(std::max(round_up(bytes), kHugePage)));
}

}  // namespace tessera
