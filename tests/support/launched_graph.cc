// SPDX-License-Identifier: Apache-2.0
#include "tests/support/launched_graph.h"

#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "core/backend/reference/array.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/passes/spmd/lower.h"
#include "tests/support/simulated_mesh.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;

// One allocation for the values and the kernels' scratch memory.
class LaunchedGraph {
 public:
  LaunchedGraph(Device& device, const Graph& graph, const Placement& placement)
      : device_(device), graph_(graph), stream_(device.make_stream(StreamUse::kCompute)) {
    for (const ValueId id : graph.values().ids())
      begins_[id] =
          placed(graph.type(id).bytes()) + placement.shift * dtype_bytes(graph.type(id).dtype);
    for (const Node& node : graph.nodes()) {
      kernels_.push_back(device.prepare(graph, node));
      scratch_.push_back(placed(kernels_.back()->scratch_bytes()));
      if (!placement.in_place) continue;
      CHECK(kernels_.back()->may_overwrite(0, 0), "{} may not overwrite", node.op->name);
      begins_[node.outputs[0]] = begins_.at(node.inputs[0]);
    }
    memory_ = device.allocate(bytes_);
  }
  ~LaunchedGraph() { device_.release(memory_, bytes_); }
  LaunchedGraph(const LaunchedGraph&) = delete;
  LaunchedGraph& operator=(const LaunchedGraph&) = delete;

  void write(const ReferenceInputs& inputs) {
    for (const GraphInput& input : graph_.inputs()) {
      const Type& type = graph_.type(input.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      encode_values(type.dtype, inputs.at(input.name), bytes.data());
      stream_->copy_from_host(at(input.value), bytes);
    }
  }
  void launch() {
    size_t next = 0;
    for (const Node& node : graph_.nodes()) {
      std::vector<DeviceAddress> from, to;
      for (const ValueId id : node.inputs) from.push_back(at(id));
      for (const ValueId id : node.outputs) to.push_back(at(id));
      stream_->launch(*kernels_[next], {from, to, memory_ + scratch_[next]});
      stream_->synchronize();
      ++next;
    }
  }
  std::vector<double> read(ValueId id) {
    const Type& type = graph_.type(id);
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    stream_->copy_to_host(bytes, at(id));
    stream_->synchronize();
    return decode_values(type, bytes.data());
  }

 private:
  // Where the next `bytes` bytes begin, with room for a shift behind them.
  int64_t placed(int64_t bytes) {
    const int64_t begin = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    return begin;
  }
  DeviceAddress at(ValueId id) const { return memory_ + begins_.at(id); }

  Device& device_;
  const Graph& graph_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::map<ValueId, int64_t> begins_;
  std::vector<int64_t> scratch_;
  int64_t bytes_ = 0;
  DeviceAddress memory_;
};

}  // namespace

GraphResults run_launched(Device& device, const Graph& graph, const ReferenceInputs& inputs,
                          const Placement& placement) {
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
