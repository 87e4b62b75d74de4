// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

// Memory of a device between guard bytes.
class Memory {
 public:
  // Allocates memory that begins `offset` bytes after a multiple of 64.
  Memory(Device& device, Stream& stream, int64_t bytes, int64_t offset)
      : device_(device),
        stream_(stream),
        bytes_(bytes),
        before_(kGuardBytes + offset),
        allocated_(before_ + bytes + kGuardBytes),
        memory_(device.allocate(allocated_)) {
    stream_.copy_from_host(
        memory_, std::vector<std::byte>(static_cast<size_t>(allocated_), std::byte{0x5a}));
  }
  ~Memory() { device_.release(memory_, allocated_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  DeviceAddress address() const { return memory_ + before_; }
  void encode(DType dtype, const Values& values) {
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_));
    encode_values(dtype, values, bytes.data());
    stream_.copy_from_host(address(), bytes);
  }
  Values decode(const Type& type) const { return decode_values(type, all().data() + before_); }
  bool guards_whole() const {
    const std::vector<std::byte> bytes = all();
    const auto guard = [](std::byte byte) { return byte == std::byte{0x5a}; };
    return std::all_of(bytes.begin(), bytes.begin() + before_, guard) &&
           std::all_of(bytes.begin() + before_ + bytes_, bytes.end(), guard);
  }

 private:
  static constexpr int64_t kGuardBytes = 128;

  std::vector<std::byte> all() const {
    std::vector<std::byte> bytes(static_cast<size_t>(allocated_));
    stream_.copy_to_host(bytes, memory_);
    stream_.synchronize();
    return bytes;
  }

  Device& device_;
  Stream& stream_;
  int64_t bytes_, before_, allocated_;
  DeviceAddress memory_;
};

Values drawn(const Type& type, const KernelCheck& check, std::mt19937_64& random) {
  Values values(static_cast<size_t>(type.elements()));
  std::normal_distribution<double> normal(0.0, check.spread);
  std::uniform_int_distribution<int64_t> integer(0, check.max_integer - 1);
  for (double& value : values)
    value = is_floating(type.dtype) ? normal(random) : static_cast<double>(integer(random));
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  encode_values(type.dtype, values, bytes.data());  // The round trip rounds to the dtype.
  return decode_values(type, bytes.data());
}

std::string value_name(ValueId id) { return fmt::format("value {}", id); }

std::string mismatch(const Node& node, size_t result, const Type& type, const Values& got,
                     const Values& expected, const KernelCheck& check) {
  double largest = 1e-3;
  for (const double value : expected)  // Without infinities and kEmptyLse.
    if (std::abs(value) < 1e29) largest = std::max(largest, std::abs(value));
  const double tolerance =
      largest * (type.dtype == DType::kBF16 ? check.tolerance_bf16 : check.tolerance_f32);
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    if (same || std::abs(got[i] - expected[i]) <= tolerance) continue;
    return fmt::format("{} result {} {} element {}: got {}, expected {} (tolerance {})",
                       node.op->name, result, type.text_sized(), i, got[i], expected[i], tolerance);
  }
  return "";
}

// Runs one node on its reference inputs. `in_place`: each output overwrites the first input that
// allows it.
class NodeRun {
 public:
  NodeRun(const Graph& graph, const Node& node, Device& device, Stream& stream,
          const std::map<std::string, ReferenceArray>& values, int64_t offset, bool in_place)
      : stream_(stream),
        kernel_(device.prepare(graph, node)),
        scratch_(device, stream, kernel_->scratch_bytes(), 0) {
    const auto operand = [&](const Type& type) {
      const int64_t begin = offset * dtype_bytes(type.dtype);
      return std::make_unique<Memory>(device, stream, type.bytes(), begin);
    };
    for (const ValueId id : node.inputs) {
      inputs_.push_back(operand(graph.type(id)));
      inputs_.back()->encode(graph.type(id).dtype, values.at(value_name(id)).values);
    }
    std::vector<bool> taken(node.inputs.size(), false);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      outputs_.push_back(operand(graph.type(node.outputs[o])));
      results_.push_back(outputs_.back().get());
      for (size_t i = 0; in_place && i < node.inputs.size(); ++i) {
        if (taken[i] || !kernel_->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(i)))
          continue;
        taken[i] = shared_ = true;
        results_.back() = inputs_[i].get();
        break;
      }
    }
    stream.synchronize();  // Memory may be released without a run.
  }

  bool shared() const { return shared_; }
  void run() {
    std::vector<DeviceAddress> inputs, outputs;
    for (const auto& each : inputs_) inputs.push_back(each->address());
    for (const Memory* each : results_) outputs.push_back(each->address());
    stream_.launch(*kernel_, {inputs, outputs, scratch_.address()});
    stream_.synchronize();
  }
  std::vector<Values> results(const Graph& graph, const Node& node) const {
    std::vector<Values> values;
    for (size_t i = 0; i < results_.size(); ++i)
      values.push_back(results_[i]->decode(graph.type(node.outputs[i])));
    return values;
  }
  bool guards_whole() const {
    const auto whole = [](const std::unique_ptr<Memory>& memory) { return memory->guards_whole(); };
    return scratch_.guards_whole() && std::all_of(outputs_.begin(), outputs_.end(), whole) &&
           std::all_of(inputs_.begin(), inputs_.end(), whole);
  }

 private:
  Stream& stream_;
  std::unique_ptr<Kernel> kernel_;
  Memory scratch_;
  std::vector<std::unique_ptr<Memory>> inputs_, outputs_;
  std::vector<const Memory*> results_;  // Outputs, or the inputs that they overwrite.
  bool shared_ = false;
};

// NaN equals NaN.
bool same_numbers(const std::vector<Values>& a, const std::vector<Values>& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return std::ranges::equal(
      a, b, [&](const Values& x, const Values& y) { return std::ranges::equal(x, y, same); });
}

std::string node_mismatch(const Graph& graph, const Node& node, Device& device, Stream& stream,
                          const std::map<std::string, ReferenceArray>& values,
                          const KernelCheck& check) {
  for (const bool in_place : {false, true}) {
    NodeRun run(graph, node, device, stream, values, check.offset, in_place);
    if (in_place && !run.shared()) continue;
    run.run();
    if (!run.guards_whole()) return fmt::format("{} wrote past a buffer", node.op->name);
    const std::vector<Values> results = run.results(graph, node);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Type& type = graph.type(node.outputs[o]);
      const Values& expected = values.at(value_name(node.outputs[o])).values;
      const Values& got = results[o];
      const std::string problem = mismatch(node, o, type, got, expected, check);
      if (!problem.empty()) return problem + (in_place ? " (in place)" : "");
    }
    if (run.shared()) continue;
    run.run();
    if (!same_numbers(results, run.results(graph, node)))
      return fmt::format("{} has other results when it runs again", node.op->name);
  }
  return "";
}

}  // namespace

std::string kernel_mismatch(const Graph& graph, const KernelCheck& check) {
  std::mt19937_64 random(1);
  ReferenceInputs inputs;
  for (const GraphInput& input : graph.inputs()) {
    const auto given = check.given.find(input.name);
    inputs[input.name] =
        given != check.given.end() ? given->second : drawn(graph.type(input.value), check, random);
  }
  Graph watched = graph;
  for (const ValueId id : graph.values().ids()) watched.add_output(value_name(id), id);
  const std::map<std::string, ReferenceArray> values = evaluate(watched, inputs);

  const std::unique_ptr<Device> cpu =
      check.device == nullptr ? make_cpu_device(check.threads) : nullptr;
  Device& device = check.device == nullptr ? *cpu : *check.device;
  const std::unique_ptr<Stream> stream = device.make_stream(StreamUse::kCompute);
  for (const Node& node : graph.nodes()) {
    if (node.op->decomposition == nullptr && node.op->name != "random_uniform") continue;
    const std::string problem = node_mismatch(graph, node, device, *stream, values, check);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace tessera
