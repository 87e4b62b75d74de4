// SPDX-License-Identifier: Apache-2.0
#include "core/devices/reference/device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/kernel.h"

namespace tessera {
namespace {

constexpr size_t kArenaAlignment = 64;  // Alignment that Device::allocate() promises.

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(const ReferenceDeviceOptions& options) : options_(options) {}

  std::string_view kind() const override { return "reference"; }
  std::string description() const override { return "reference interpreter"; }
  double peak_flops(DType) const override { return 1.0; }
  int64_t available_bytes() const override { return available_memory(); }
  DeviceAddress allocate(int64_t bytes) override {
    const size_t size = (static_cast<size_t>(bytes) / kArenaAlignment + 1) * kArenaAlignment;
    void* const memory = std::aligned_alloc(kArenaAlignment, size);
    if (memory != nullptr) std::memset(memory, 0, size);
    return address_of(static_cast<std::byte*>(memory));
  }
  void release(DeviceAddress memory, int64_t) override { std::free(pointer_to(memory)); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return make_reference_kernel(graph, node, options_);
  }
  bool has_kernel(const OpDef&) const override { return true; }
  std::unique_ptr<Stream> make_stream(StreamUse) override { return make_inline_stream(); }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }

 private:
  ReferenceDeviceOptions options_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options) {
  return std::make_unique<ReferenceDevice>(options);
}

std::vector<std::unique_ptr<Device>> make_reference_devices(int64_t count, int, int) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int64_t i = 0; i < count; ++i) devices.push_back(make_reference_device());
  return devices;
}

}  // namespace tessera
