// SPDX-License-Identifier: Apache-2.0
#include "tests/support/launched_graph.h"

#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/spmd/lower.h"
#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "tests/support/simulated_mesh.h"

namespace tessera {
namespace {

// A separate allocation, so that the device can detect accesses past its end. Filled with 0xCD,
// so that elements that no kernel writes are found.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, Stream& stream, int64_t bytes)
      : device_(device), bytes_(bytes), memory_(device.allocate(bytes)) {
    stream.copy_from_host(memory_, std::vector(static_cast<size_t>(bytes), std::byte{0xCD}));
  }
  ~DeviceMemory() {
    try {
      device_.release(memory_, bytes_);
    } catch (const Error&) {  // A device that has failed refuses; the launch has thrown already.
    }
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  DeviceAddress address() const { return memory_; }

 private:
  Device& device_;
  int64_t bytes_;
  DeviceAddress memory_;
};

class LaunchedGraph {
 public:
  LaunchedGraph(Device& device, const Graph& graph, const OperandPlace& placement)
      : graph_(graph), stream_(device.make_stream(StreamUse::kCompute)) {
    const auto placed = [&](int64_t bytes) {
      memory_.push_back(std::make_unique<DeviceMemory>(device, *stream_, bytes));
      return memory_.back()->address();
    };
    for (const ValueId id : graph.values().ids()) {
      const int64_t shift = placement.shift * dtype_bytes(graph.type(id).dtype);
      addresses_[id] = placed(graph.type(id).bytes() + shift) + shift;
    }
    for (const Node& node : graph.nodes()) {
      kernels_.push_back(device.prepare(graph, node));
      scratch_.push_back(placed(kernels_.back()->scratch_bytes()));
      if (!placement.in_place) continue;
      CHECK(kernels_.back()->may_overwrite(0, 0), "{} may not overwrite", node.op->name);
      addresses_[node.outputs[0]] = addresses_.at(node.inputs[0]);
    }
    stream_->synchronize();
  }

  void write(const ReferenceInputs& inputs) {
    for (const GraphInput& input : graph_.inputs()) {
      const Type& type = graph_.type(input.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      encode_values(type.dtype, inputs.at(input.name), bytes.data());
      stream_->copy_from_host(addresses_.at(input.value), bytes);
    }
  }
  void launch() {
    size_t next = 0;
    for (const Node& node : graph_.nodes()) {
      std::vector<DeviceAddress> from, to;
      for (const ValueId id : node.inputs) from.push_back(addresses_.at(id));
      for (const ValueId id : node.outputs) to.push_back(addresses_.at(id));
      stream_->launch(*kernels_[next], {from, to, scratch_[next]});
      stream_->synchronize();
      ++next;
    }
  }
  std::vector<double> read(ValueId id) {
    const Type& type = graph_.type(id);
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    stream_->copy_to_host(bytes, addresses_.at(id));
    stream_->synchronize();
    return decode_values(type, bytes.data());
  }

 private:
  const Graph& graph_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::map<ValueId, DeviceAddress> addresses_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<DeviceAddress> scratch_;  // Scratch memory of each kernel.
};

}  // namespace

GraphResults run_launched(Device& device, const Graph& graph, const ReferenceInputs& inputs,
                          const OperandPlace& placement) {
  LaunchedGraph launched(device, graph, placement);
  launched.write(inputs);
  launched.launch();
  GraphResults results;
  for (const GraphOutput& output : graph.outputs())
    results[output.name] = launched.read(output.value);
  return results;
}

GraphResults rounded_reference(const Graph& graph, const ReferenceInputs& inputs) {
  GraphResults results;
  for (const auto& [name, array] : evaluate(graph, inputs)) {
    const Type& type = graph.type(graph.find_output(name)->value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    encode_values(type.dtype, array.values, bytes.data());
    results[name] = decode_values(type, bytes.data());
  }
  return results;
}

std::string element_difference(const GraphResults& got, const GraphResults& expected,
                               Tolerance tolerance) {
  for (const auto& [name, want] : expected) {
    const std::vector<double>& have = got.at(name);
    if (have.size() != want.size()) return fmt::format("{}: sizes differ", name);
    for (size_t i = 0; i < want.size(); ++i) {
      if (have[i] == want[i] || (std::isnan(have[i]) && std::isnan(want[i]))) continue;
      const double allowed = tolerance.absolute + tolerance.relative * std::abs(want[i]);
      if (std::isfinite(want[i]) && std::abs(have[i] - want[i]) <= allowed) continue;
      return fmt::format("{}[{}]: got {}, expected {}", name, i, have[i], want[i]);
    }
  }
  return "";
}

std::string difference_on_shards(const Graph& traced, const Mesh& mesh, Device& device,
                                 Device& other) {
  const ReferenceInputs whole = random_inputs(traced, 7, 5);
  for (int64_t number = 0; number < mesh.num_devices(); ++number) {
    ReferenceInputs shards;
    for (const GraphInput& input : traced.inputs())
      shards[input.name] = shard_of(whole.at(input.name), traced.type(input.value), mesh, number);
    const Graph local = lower(traced, mesh, number);
    const std::string found =
        element_difference(run_launched(device, local, shards), run_launched(other, local, shards));
    if (!found.empty()) return fmt::format("device {}: {}", number, found);
  }
  return "";
}

}  // namespace tessera
