// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cpu_graph.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "core/base/random.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

// 64-byte aligned and exactly of the requested size, so that sanitizers detect accesses past the
// end.
struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(static_cast<std::byte*>(::operator new (
            static_cast<size_t>(std::max<int64_t>(bytes, 1)), std::align_val_t{64}))),
        size(static_cast<size_t>(bytes)) {
    std::memset(data, 0xCD, size);
  }
  ~Aligned() { ::operator delete (data, std::align_val_t{64}); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
  size_t size;
};

template <typename T>
void write_as(std::byte* to, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
std::vector<double> read_as(const std::byte* from, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

struct Narrow {  // bf16, converted through float.
  BFloat16 value;
  Narrow() = default;
  explicit Narrow(double wide) : value(static_cast<float>(wide)) {}
  explicit operator double() const { return static_cast<float>(value); }
};

void write_values(DType dtype, std::byte* to, const std::vector<double>& values) {
  switch (dtype) {
    case DType::kF64:
      return write_as<double>(to, values);
    case DType::kF32:
      return write_as<float>(to, values);
    case DType::kBF16:
      return write_as<Narrow>(to, values);
    case DType::kI32:
      return write_as<int32_t>(to, values);
    case DType::kU32:
      return write_as<uint32_t>(to, values);
    case DType::kBool:
      return write_as<uint8_t>(to, values);
  }
}

std::vector<double> read_values(DType dtype, const std::byte* from, int64_t count) {
  switch (dtype) {
    case DType::kF64:
      return read_as<double>(from, count);
    case DType::kF32:
      return read_as<float>(from, count);
    case DType::kBF16:
      return read_as<Narrow>(from, count);
    case DType::kI32:
      return read_as<int32_t>(from, count);
    case DType::kU32:
      return read_as<uint32_t>(from, count);
    case DType::kBool:
      return read_as<uint8_t>(from, count);
  }
  return {};
}

}  // namespace

ReferenceInputs random_inputs(const Graph& graph, uint64_t seed, int64_t integers) {
  ReferenceInputs inputs;
  for (const GraphInput& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    std::vector<double> values(static_cast<size_t>(type.elements()));
    const uint64_t key = random_key(seed, input.name);
    for (size_t i = 0; i < values.size(); ++i) {
      const PhiloxBlock block = philox(key, i, 0);
      const double normal = normals_from_block(block)[0];
      if (type.dtype == DType::kBF16) {
        values[i] = static_cast<float>(BFloat16(static_cast<float>(normal)));
      } else if (is_floating(type.dtype)) {
        values[i] = normal;
      } else if (type.dtype == DType::kBool) {
        values[i] = block[1] & 1u;
      } else {
        values[i] = static_cast<double>(block[1] % static_cast<uint64_t>(integers));
      }
    }
    inputs[input.name] = std::move(values);
  }
  return inputs;
}

std::map<std::string, std::vector<double>> run_on_cpu(const Graph& graph,
                                                      const ReferenceInputs& inputs,
                                                      Device& device) {
  IndexedVector<ValueId, std::unique_ptr<Aligned>> buffers;
  for (const Value& value : graph.values()) {
    buffers.push_back(std::make_unique<Aligned>(value.type->bytes()));
  }
  const auto at = [&](ValueId id) -> Aligned& { return *buffers[id]; };
  for (const GraphInput& input : graph.inputs()) {
    write_values(graph.type(input.value).dtype, at(input.value).data, inputs.at(input.name));
  }
  for (const Node& node : graph.nodes()) {
    if (node.op->op_class == OpClass::kView) {
      std::memcpy(at(node.outputs[0]).data, at(node.inputs[0]).data, at(node.inputs[0]).size);
      continue;
    }
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const ValueId id : node.inputs) from.push_back(at(id).data);
    for (const ValueId id : node.outputs) to.push_back(at(id).data);
    const std::unique_ptr<Kernel> kernel = device.prepare(graph, node);
    const Aligned scratch(kernel->scratch_bytes());
    host_kernel(*kernel).run({from, to, scratch.data});
  }
  std::map<std::string, std::vector<double>> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    const Type& type = graph.type(output.value);
    outputs[output.name] = read_values(type.dtype, at(output.value).data, type.elements());
  }
  return outputs;
}

std::string difference_from_reference(const Graph& graph, const ReferenceInputs& inputs,
                                      Device& device, Tolerance tolerance) {
  const auto expected = evaluate(graph, inputs);
  const auto got = run_on_cpu(graph, inputs, device);
  double worst = 0.0;
  std::string message;
  for (const GraphOutput& output : graph.outputs()) {
    const std::vector<double>& want = expected.at(output.name).values;
    const std::vector<double>& have = got.at(output.name);
    if (want.size() != have.size()) return fmt::format("{}: sizes differ", output.name);
    double largest = 0.0;
    for (const double value : want) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(have[i])) continue;
      if (want[i] == have[i]) continue;
      double allowed = tolerance.absolute + tolerance.relative * largest;
      if (graph.type(output.value).dtype == DType::kBF16) allowed += std::abs(want[i]) / 256.0;
      const double excess = std::abs(want[i] - have[i]) / (allowed > 0 ? allowed : 1e-300);
      if (!(excess > worst) && !std::isnan(excess)) continue;
      worst = std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
      message = fmt::format("{}[{}]: got {}, expected {}", output.name, i, have[i], want[i]);
    }
  }
  return worst > 1.0 ? message : "";
}

Graph fuse_all(const Graph& graph) {
  Graph fused;
  Node node;
  std::vector<SharedType> types;
  for (const GraphInput& input : graph.inputs()) {
    node.inputs.push_back(fused.add_input(input.name, input.kind, graph.type(input.value)));
  }
  for (const GraphOutput& output : graph.outputs()) types.push_back(graph.type(output.value));
  node.op = &kFusedOp;
  node.bodies.push_back(std::make_shared<Graph>(graph));
  const NodeId id = fused.add_node(std::move(node), types);
  for (size_t i = 0; i < types.size(); ++i) {
    fused.add_output(graph.outputs()[i].name, fused.node(id).outputs[i]);
  }
  return fused;
}

}  // namespace tessera
