// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include <fmt/core.h>

#include "core/backend/cpu/device.h"
#include "core/backend/cpu/stream.h"
#include "core/backend/reference/array.h"
#include "core/backend/reference/interpreter.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

// Memory with an arena's alignment, followed by guard bytes.
class Memory {
 public:
  explicit Memory(int64_t bytes)
      : bytes_(bytes), memory_(static_cast<size_t>(bytes) + 128, std::byte{0x5a}) {}
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64;
  }
  bool guard_whole() {
    const std::byte* end = data() + bytes_;
    return std::all_of(end, std::as_const(memory_).data() + memory_.size(),
                       [](std::byte byte) { return byte == std::byte{0x5a}; });
  }

 private:
  int64_t bytes_;
  std::vector<std::byte> memory_;
};

Values drawn(const Type& type, const KernelCheck& check, std::mt19937_64& random) {
  Values values(static_cast<size_t>(type.elements()));
  std::normal_distribution<double> normal(0.0, check.spread);
  std::uniform_int_distribution<int64_t> integer(0, check.max_integer - 1);
  for (double& value : values)
    value = is_floating(type.dtype) ? normal(random) : static_cast<double>(integer(random));
  Memory memory(type.bytes());  // The round trip rounds to the dtype.
  encode_values(type.dtype, values, memory.data());
  return decode_values(type, memory.data());
}

std::string value_name(ValueId id) { return fmt::format("value {}", id); }

std::string mismatch(const Node& node, size_t result, const Type& type, const Values& got,
                     const Values& expected, const KernelCheck& check) {
  double largest = 1e-3;
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
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
  NodeRun(const Graph& graph, const Node& node, Device& device,
          const std::map<std::string, ReferenceArray>& values, bool in_place)
      : kernel_(device.prepare(graph, node)), scratch_(kernel_->scratch_bytes()) {
    for (const ValueId id : node.inputs) {
      inputs_.emplace_back(graph.type(id).bytes());
      encode_values(graph.type(id).dtype, values.at(value_name(id)).values, inputs_.back().data());
      input_pointers_.push_back(inputs_.back().data());
    }
    std::vector<bool> taken(node.inputs.size(), false);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      outputs_.emplace_back(graph.type(node.outputs[o]).bytes());
      std::byte* out = outputs_.back().data();
      for (size_t i = 0; in_place && i < node.inputs.size(); ++i) {
        if (taken[i] || !kernel_->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(i)))
          continue;
        taken[i] = shared_ = true;
        out = inputs_[i].data();
        break;
      }
      output_pointers_.push_back(out);
    }
  }

  bool shared() const { return shared_; }
  void run() { host_kernel(*kernel_).run({input_pointers_, output_pointers_, scratch_.data()}); }
  const std::byte* output(size_t i) const { return output_pointers_[i]; }
  bool guards_whole() {
    const auto whole = [](Memory& memory) { return memory.guard_whole(); };
    return scratch_.guard_whole() && std::all_of(outputs_.begin(), outputs_.end(), whole) &&
           std::all_of(inputs_.begin(), inputs_.end(), whole);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  Memory scratch_;
  std::vector<Memory> inputs_, outputs_;
  std::vector<const std::byte*> input_pointers_;
  std::vector<std::byte*> output_pointers_;
  bool shared_ = false;
};

std::string node_mismatch(const Graph& graph, const Node& node, Device& device,
                          const std::map<std::string, ReferenceArray>& values,
                          const KernelCheck& check) {
  for (const bool in_place : {false, true}) {
    NodeRun run(graph, node, device, values, in_place);
    if (in_place && !run.shared()) continue;
    run.run();
    if (!run.guards_whole()) return fmt::format("{} wrote past a buffer", node.op->name);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Type& type = graph.type(node.outputs[o]);
      const Values& expected = values.at(value_name(node.outputs[o])).values;
      const Values got = decode_values(type, run.output(o));
      const std::string problem = mismatch(node, o, type, got, expected, check);
      if (!problem.empty()) return problem + (in_place ? " (in place)" : "");
    }
  }
  return "";
}

}  // namespace

std::vector<Tensor> traced_gradient(Graph& graph, const Node& node) {
  std::vector<Tensor> inputs, outputs, cotangents;
  for (const ValueId value : node.inputs) inputs.emplace_back(&graph, value);
  for (const ValueId value : node.outputs) outputs.emplace_back(&graph, value);
  cotangents.resize(outputs.size());
  cotangents[0] = input("dy", InputKind::kBatch, outputs[0].type());
  return node.op->vjp({node, inputs, outputs, cotangents});
}

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

  const std::unique_ptr<Device> device = make_cpu_device(check.threads);
  for (const Node& node : graph.nodes()) {
    if (node.op->decomposition == nullptr && node.op->name != "random_uniform") continue;
    const std::string problem = node_mismatch(graph, node, *device, values, check);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace tessera
