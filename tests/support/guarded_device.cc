// SPDX-License-Identifier: Apache-2.0
// The device kind "guarded": it computes like the CPU, but the host cannot access its memory, as on
// a GPU. Its addresses are in an inaccessible range, so dereferencing one on the host is a
// segmentation fault; the device translates them. All streams are threads, and launches and copies
// are delayed at random, so a missing wait gives wrong results. It is linked into the test programs
// and is also a plugin for runexp.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/runtime/comm/cpu_communicator.h"
#include "core/runtime/executor/device_kinds.h"

namespace tessera {
namespace {

// Most launches are not delayed, to keep tests fast.
void delay_at_random() {
  thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

// An arena may be empty, a mapping may not.
size_t fence_bytes(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 1)); }

class GuardedDevice final : public Device {
 public:
  explicit GuardedDevice(std::unique_ptr<Device> cpu) : cpu_(std::move(cpu)) {}

  std::string_view kind() const override { return "guarded"; }
  std::string description() const override { return "guarded " + cpu_->description(); }
  double peak_flops(DType dtype) const override { return cpu_->peak_flops(dtype); }
  int64_t available_bytes() const override { return cpu_->available_bytes(); }

  DeviceAddress allocate(int64_t bytes) override {
    const DeviceAddress real = cpu_->allocate(bytes);
    if (real.is_null()) return real;
    void* const fence = mmap(nullptr, fence_bytes(bytes), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(fence != MAP_FAILED);
    const DeviceAddress address = address_of(static_cast<std::byte*>(fence));
    const std::lock_guard lock(mutex_);
    blocks_[address] = {real, bytes};
    return address;
  }
  void release(DeviceAddress memory, int64_t bytes) override {
    if (memory.is_null()) return;
    const std::lock_guard lock(mutex_);
    const Memory& block = blocks_.at(memory);
    CHECK(block.bytes == bytes, "{} bytes were allocated, {} are released", block.bytes, bytes);
    cpu_->release(block.real, bytes);
    munmap(pointer_to(memory), fence_bytes(bytes));
    blocks_.erase(memory);
  }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return cpu_->prepare(graph, node);
  }
  bool has_kernel(const OpDef& op) const override { return cpu_->has_kernel(op); }
  bool is_asynchronous() const override { return true; }

  std::unique_ptr<Stream> make_stream(StreamUse) override {
    return make_thread_stream(
        {.to_host = [this](DeviceAddress address) { return translate(address); },
         .before_each = delay_at_random});
  }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }

 private:
  struct Memory {
    DeviceAddress real;
    int64_t bytes = 0;
  };

  std::byte* translate(DeviceAddress address) const {
    if (address.is_null()) return nullptr;
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(address);
    CHECK(block != blocks_.begin(), "an address of no allocation");
    --block;
    const auto offset = static_cast<int64_t>(address.value() - block->first.value());
    CHECK(offset <= block->second.bytes, "an address {} bytes into {} bytes", offset,
          block->second.bytes);
    return pointer_to(block->second.real + offset);
  }

  std::unique_ptr<Device> cpu_;
  mutable std::mutex mutex_;
  std::map<DeviceAddress, Memory> blocks_;  // By host-visible address.
};

std::vector<std::unique_ptr<Device>> make_guarded_devices(int64_t count, int threads, int) {
  std::vector<std::unique_ptr<Device>> devices;
  for (std::unique_ptr<Device>& cpu : make_cpu_devices(count, threads))
    devices.push_back(std::make_unique<GuardedDevice>(std::move(cpu)));
  return devices;
}

const bool kRegistered = [] {
  register_device_kind("guarded", {.make_devices = make_guarded_devices,
                                   .make_communicator = make_cpu_communicator,
                                   .collective_needs = cpu_collective_needs,
                                   .has_all_numerics = true});
  return true;
}();

}  // namespace
}  // namespace tessera
