// SPDX-License-Identifier: Apache-2.0
#include "core/check/run_graph.h"

#include <cmath>

#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {
std::vector<std::byte> encoded(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  encode_values(dtype, values, bytes.data());
  return bytes;
}

std::vector<double> rounded(const Type& type, const std::vector<double>& values) {
  return decode_values(type, encoded(type.dtype, values).data());
}

std::map<std::string, std::vector<double>> run_graph(const Graph& graph,
                                                     const ReferenceInputs& inputs, Device& device,
                                                     const CompileOptions& options) {
  Executor executor(device);
  const int program = executor.add_program(graph, options);
  executor.allocate();
  for (const GraphInput& each : graph.inputs()) {
    const auto bytes = encoded(graph.type(each.value).dtype, inputs.at(each.name));
    if (each.kind == InputKind::kParameter || each.kind == InputKind::kState) {
      executor.write_state(each.name, bytes);
    } else {
      executor.write_input(program, each.name, bytes);
    }
  }
  executor.run(program);
  std::map<std::string, std::vector<double>> results;
  for (const GraphOutput& each : graph.outputs()) {
    const Type& type = graph.type(each.value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
    if (each.is_update) {
      executor.read_state(each.name, bytes);
    } else {
      executor.read_output(program, each.name, bytes);
    }
    results[each.name] = decode_values(type, bytes.data());
  }
  return results;
}

ReferenceInputs sample_inputs(const Graph& graph, int ids) {
  ReferenceInputs inputs;
  double phase = 0.3;
  for (const GraphInput& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    const int count = type.dtype == DType::kBool ? 2 : ids;
    std::vector<double>& values = inputs[input.name];
    for (int64_t i = 0; i < type.elements(); ++i) {
      phase += 0.7;
      values.push_back(is_floating(type.dtype) ? std::sin(phase * phase)
                                               : static_cast<double>(i % count));
    }
  }
  return inputs;
}

ReferenceInputs rounded(const Graph& graph, ReferenceInputs inputs) {
  for (const GraphInput& each : graph.inputs())
    inputs[each.name] = rounded(graph.type(each.value), inputs[each.name]);
  return inputs;
}

std::vector<Tensor> traced_gradient(Graph& graph, const Node& node) {
  std::vector<Tensor> inputs, outputs, cotangents;
  for (const ValueId value : node.inputs) inputs.emplace_back(&graph, value);
  for (const ValueId value : node.outputs) outputs.emplace_back(&graph, value);
  cotangents.resize(outputs.size());
  cotangents[0] = input("dy", InputKind::kBatch, outputs[0].type());
  return node.op->vjp({node, inputs, outputs, cotangents});
}

}  // namespace tessera
