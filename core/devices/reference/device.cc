// SPDX-License-Identifier: Apache-2.0
#include "core/devices/reference/device.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/op.h"
#include "core/ops/layout.h"

namespace tessera {
namespace {

constexpr size_t kArenaAlignment = 64;  // Alignment that Device::allocate() promises.

// Runs a graph of one node.
class ReferenceKernel final : public HostKernel {
 public:
  ReferenceKernel(const Graph& graph, const Node& node, const ReferenceDeviceOptions& options)
      : options_(options), elementwise_(node.op->op_class == OpClass::kElementwise) {
    is_copy_ = node.op == &kCopyOp;
    Node alone = node;
    alone.inputs.clear();
    for (const ValueId value : node.inputs)
      alone.inputs.push_back(single_.add_input(fmt::format("{}", single_.inputs().size()),
                                               InputKind::kLoop, graph.type(value)));
    std::vector<SharedType> types;
    for (const ValueId value : node.outputs) types.push_back(graph.type(value));
    if (is_copy_) {
      single_.add_output("0", alone.inputs[0]);
      return;
    }
    const NodeId id = single_.add_node(std::move(alone), types);
    for (const ValueId value : single_.node(id).outputs)
      single_.add_output(fmt::format("{}", single_.outputs().size()), value);
  }

  // Copies need no kernel: memory planning adds them for any backend.
  int64_t scratch_bytes() const override { return is_copy_ ? 0 : options_.scratch_bytes; }

  void run(const HostArgs& args) override {
    if (scratch_bytes() > 0) std::memset(args.scratch, 0x5a, static_cast<size_t>(scratch_bytes()));
    std::vector<ReferenceArray> inputs;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const Type& type = single_.type(single_.inputs()[i].value);
      inputs.push_back({type.axes, decode_values(type, args.inputs[i])});
    }
    const std::vector<ReferenceArray> outputs = is_copy_ ? std::move(inputs) : results_of(inputs);
    for (size_t i = 0; i < args.outputs.size(); ++i)
      encode_values(single_.type(single_.outputs()[i].value).dtype, outputs[i].values,
                    args.outputs[i]);
  }

  bool may_overwrite(int64_t output, int64_t input) const override {
    const Type& from = single_.type(single_.inputs()[static_cast<size_t>(input)].value);
    const Type& to = single_.type(single_.outputs()[static_cast<size_t>(output)].value);
    return options_.may_overwrite && elementwise_ && from == to;
  }

 private:
  std::vector<ReferenceArray> results_of(const std::vector<ReferenceArray>& inputs) const {
    std::vector<const ReferenceArray*> operands;
    for (const ReferenceArray& each : inputs) operands.push_back(&each);
    return evaluate_node(single_, single_.nodes().front(), operands);
  }

  ReferenceDeviceOptions options_;
  bool elementwise_;
  bool is_copy_ = false;
  Graph single_;
};

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
    return std::make_unique<ReferenceKernel>(graph, node, options_);
  }
  bool has_kernel(const OpDef&) const override { return true; }
  std::unique_ptr<Stream> make_stream(StreamUse) override { return make_inline_stream(); }
  std::unique_ptr<Event> make_event() override { return make_host_event(); }

 private:
  ReferenceDeviceOptions options_;
};

const bool kRegistered = [] {
  f64_kernel_factory() = [](const Graph& graph, const Node& node) -> std::unique_ptr<Kernel> {
    return std::make_unique<ReferenceKernel>(graph, node, ReferenceDeviceOptions{});
  };
  return true;
}();

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
