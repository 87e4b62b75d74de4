// SPDX-License-Identifier: Apache-2.0
#include "core/devices/reference/interpreter.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/devices/reference/primitives.h"
#include "core/graph/decomposition.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

class Interpreter {
 public:
  explicit Interpreter(const Mesh& mesh) : mesh_(mesh) {}

  // Returns the graph's outputs, in order, from its inputs, in order.
  std::vector<ReferenceArray> run(const Graph& graph, std::vector<ReferenceArray> inputs) const {
    IndexedVector<ValueId, ReferenceArray> values(graph.values().size());
    for (size_t i = 0; i < inputs.size(); ++i)
      values[graph.inputs()[i].value] = std::move(inputs[i]);
    for (const Node& node : graph.nodes()) {
      std::vector<const ReferenceArray*> operands;
      for (const ValueId id : node.inputs) operands.push_back(&values[id]);
      std::vector<ReferenceArray> results = run_node(graph, node, operands);
      for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = std::move(results[i]);
    }
    std::vector<ReferenceArray> outputs;
    for (const GraphOutput& each : graph.outputs()) outputs.push_back(values[each.value]);
    return outputs;
  }

  std::vector<ReferenceArray> run_node(const Graph& graph, const Node& node,
                                       const std::vector<const ReferenceArray*>& operands) const {
    if (node.op->op_class == OpClass::kLoop) return run_repeat(graph, node, operands);
    if (!node.bodies.empty()) return run(*node.bodies.front(), copies_of(operands));  // Fused.
    if (const ReferenceFunction primitive = find_reference(*node.op)) {
      const Type& type = graph.type(node.outputs.front());
      return {{type.axes, primitive({node, operands, type})}};
    }
    if (node.op->decomposition != nullptr)
      return run(decomposition_of(graph, node, mesh_), copies_of(operands));
    fail("the reference interpreter has no op '{}', and the op has no decomposition",
         node.op->name);
  }

 private:
  static std::vector<ReferenceArray> copies_of(std::span<const ReferenceArray* const> arrays) {
    std::vector<ReferenceArray> copies;
    for (const ReferenceArray* array : arrays) copies.push_back(*array);
    return copies;
  }

  // Runs a loop; core/ops/repeat.h gives the order of inputs and outputs.
  std::vector<ReferenceArray> run_repeat(const Graph& graph, const Node& node,
                                         const std::vector<const ReferenceArray*>& operands) const {
    const Graph& body = *node.bodies.front();
    const Loop loop(node);
    const size_t carries = loop.carries(), stacked = loop.slices();

    std::vector<ReferenceArray> state = copies_of(std::span(operands).first(carries));
    std::vector<ReferenceArray> collected(node.outputs.size() - carries);
    for (size_t i = 0; i < collected.size(); ++i) {
      collected[i].axes = graph.type(node.outputs[carries + i]).axes;
      collected[i].values.resize(static_cast<size_t>(element_count(collected[i].axes)));
    }
    for (int64_t step = 0; step < loop.count(); ++step) {
      const int64_t index = loop.iteration(step);
      std::vector<ReferenceArray> inputs = {{{}, {static_cast<double>(index)}}};
      inputs.insert(inputs.end(), state.begin(), state.end());
      for (size_t i = carries; i < operands.size(); ++i)
        inputs.push_back(i < carries + stacked ? slice_of(*operands[i], index) : *operands[i]);
      std::vector<ReferenceArray> outputs = run(body, std::move(inputs));
      for (size_t i = 0; i < collected.size(); ++i) {
        const std::vector<double>& slice = outputs[carries + i].values;
        std::copy(slice.begin(), slice.end(),
                  collected[i].values.begin() + index * std::ssize(slice));
      }
      outputs.resize(carries);
      state = std::move(outputs);
    }
    std::move(collected.begin(), collected.end(), std::back_inserter(state));
    return state;
  }

  static ReferenceArray slice_of(const ReferenceArray& array, int64_t index) {
    ReferenceArray slice{{array.axes.begin() + 1, array.axes.end()}, {}};
    const int64_t size = element_count(slice.axes);
    slice.values.assign(array.values.begin() + index * size,
                        array.values.begin() + (index + 1) * size);
    return slice;
  }

  const Mesh& mesh_;
};

}  // namespace

std::vector<ReferenceArray> evaluate_node(const Graph& graph, const Node& node,
                                          const std::vector<const ReferenceArray*>& operands,
                                          const Mesh& mesh) {
  return Interpreter(mesh).run_node(graph, node, operands);
}

std::map<std::string, ReferenceArray> evaluate(const Graph& graph, const ReferenceInputs& inputs,
                                               const Mesh& mesh) {
  std::vector<ReferenceArray> values;
  for (const GraphInput& each : graph.inputs()) {
    const auto found = inputs.find(each.name);
    if (found == inputs.end()) fail("the reference interpreter got no input '{}'", each.name);
    const Type& type = graph.type(each.value);
    if (std::ssize(found->second) != type.elements())
      fail("input '{}' has {} elements, expected {} for {}", each.name, found->second.size(),
           type.elements(), type.text_sized());
    values.push_back({type.axes, found->second});
  }
  std::vector<ReferenceArray> outputs = Interpreter(mesh).run(graph, std::move(values));
  std::map<std::string, ReferenceArray> named;
  for (size_t i = 0; i < outputs.size(); ++i)
    named[graph.outputs()[i].name] = std::move(outputs[i]);
  return named;
}

}  // namespace tessera
