// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulated_mesh.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>  // For the formatter of ids (core/base/ids.h).

#include "core/base/error.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/type.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Arrays = std::vector<ReferenceArray>;  // One per device, or one per value.

// Calls visit(global, local) with the global and the local position of each element of a block.
template <typename Visit>
void each_place(const Type& type, const Region& block, const Visit& visit) {
  std::vector<Axis> local = type.axes;
  for (size_t i = 0; i < local.size(); ++i) local[i].size = block.shape[i];
  const std::vector<int64_t> strides = strides_along({type.axes, {}}, type.axes);
  int64_t begin = 0;
  for (size_t i = 0; i < strides.size(); ++i) begin += block.origin[i] * strides[i];
  for_each_index(local, {strides}, [&](int64_t position, const std::vector<int64_t>& at) {
    visit(static_cast<size_t>(begin + at[0]), static_cast<size_t>(position));
  });
}

// Visits all elements of a device's part of a value.
template <typename Visit>
void each_place_on(const Type& type, const Mesh& mesh, int64_t device, const Visit& visit) {
  const Type local = local_type(type, mesh);
  for (const ShardBlock& block : shard_blocks(type, mesh, device)) {
    std::vector<size_t> in_part;
    each_place(local, block.local(), [&](size_t at, size_t) { in_part.push_back(at); });
    each_place(type, block.global, [&](size_t at, size_t i) { visit(at, in_part[i]); });
  }
}

// The slice [begin, end) of x along `axis`.
ReferenceArray rows_of(const ReferenceArray& x, const std::string& axis, int64_t begin,
                       int64_t end) {
  Region block;
  Type type{DType::kF64, x.axes, {}};
  for (const Axis& each : x.axes) {
    block.origin.push_back(each.name == axis ? begin : 0);
    block.shape.push_back(each.name == axis ? end - begin : each.size);
  }
  ReferenceArray part{x.axes, {}};
  for (Axis& each : part.axes)
    if (each.name == axis) each.size = end - begin;
  part.values.resize(static_cast<size_t>(element_count(part.axes)));
  each_place(type, block, [&](size_t from, size_t to) { part.values[to] = x.values[from]; });
  return part;
}

ReferenceArray joined(const std::vector<const ReferenceArray*>& parts, const std::string& axis) {
  Type type{DType::kF64, parts[0]->axes, {}};
  Region block;
  int64_t along = -1;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    block.origin.push_back(0);
    block.shape.push_back(type.axes[i].size);
    if (type.axes[i].name == axis) along = static_cast<int64_t>(i);
  }
  CHECK(along >= 0, "no axis {}", axis);
  const size_t at = static_cast<size_t>(along);
  type.axes[at].size *= static_cast<int64_t>(parts.size());
  ReferenceArray whole{type.axes, std::vector<double>(static_cast<size_t>(type.elements()))};
  for (const ReferenceArray* part : parts) {
    each_place(type, block, [&](size_t to, size_t from) { whole.values[to] = part->values[from]; });
    block.origin[at] += block.shape[at];
  }
  return whole;
}

ReferenceArray reduced(const std::vector<const ReferenceArray*>& parts, bool maximum) {
  ReferenceArray result = *parts[0];
  for (size_t k = 1; k < parts.size(); ++k) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      double& value = result.values[i];
      value = maximum ? std::max(value, parts[k]->values[i]) : value + parts[k]->values[i];
    }
  }
  return result;
}

int64_t size_along(const ReferenceArray& x, const std::string& axis) {
  for (const Axis& each : x.axes)
    if (each.name == axis) return each.size;
  fail("no axis {}", axis);
}

// The collective's result on the device of `node`, where each device has `operands[device]`.
ReferenceArray exchanged(const Node& node, const std::vector<const ReferenceArray*>& operands) {
  const Attributes& attributes = node.attributes;
  const std::string_view op = node.op->name;
  if (op == "permute") return *operands[attributes.get(key::kFrom)];
  std::vector<const ReferenceArray*> group;
  for (const int64_t device : attributes.get(key::kGroup)) group.push_back(operands[device]);
  const int64_t index = attributes.get(key::kIndex);
  const auto my_part = [&](const ReferenceArray& x, const std::string& axis) {
    const int64_t size = size_along(x, axis) / static_cast<int64_t>(group.size());
    return rows_of(x, axis, index * size, (index + 1) * size);
  };
  if (op == "all_gather") return joined(group, attributes.get(key::kAxis));
  if (op == "reduce_scatter") return my_part(reduced(group, false), attributes.get(key::kAxis));
  if (op == "all_reduce") return reduced(group, attributes.get(key::kReduction) == "max");
  CHECK(op == "all_to_all", "no collective '{}'", op);
  std::vector<ReferenceArray> parts;
  for (const ReferenceArray* each : group)
    parts.push_back(my_part(*each, attributes.get(key::kSplitAxis)));
  std::vector<const ReferenceArray*> pointers;
  for (const ReferenceArray& part : parts) pointers.push_back(&part);
  return joined(pointers, attributes.get(key::kConcatAxis));
}

// Interprets the graphs of all devices in step, node by node.
class Lockstep {
 public:
  using PerDevice = std::vector<Arrays>;  // By device, then by operand or result.
  using Values = std::vector<IndexedVector<ValueId, ReferenceArray>>;  // By device.

  PerDevice run(const std::vector<const Graph*>& graphs, PerDevice inputs) const {
    const size_t devices = graphs.size();
    Values values(devices);
    for (size_t d = 0; d < devices; ++d) {
      values[d] = IndexedVector<ValueId, ReferenceArray>(graphs[d]->values().size());
      for (size_t i = 0; i < inputs[d].size(); ++i)
        values[d][graphs[d]->inputs()[i].value] = std::move(inputs[d][i]);
    }
    for (const NodeId id : graphs[0]->nodes().ids()) {
      PerDevice results = run_node(graphs, id, values);
      for (size_t d = 0; d < devices; ++d)
        for (size_t i = 0; i < results[d].size(); ++i)
          values[d][graphs[d]->node(id).outputs[i]] = std::move(results[d][i]);
    }
    PerDevice outputs(devices);
    for (size_t d = 0; d < devices; ++d)
      for (const GraphOutput& output : graphs[d]->outputs())
        outputs[d].push_back(values[d][output.value]);
    return outputs;
  }

 private:
  PerDevice run_node(const std::vector<const Graph*>& graphs, NodeId id,
                     const Values& values) const {
    const Node& first = graphs[0]->node(id);
    if (is_repeat(first)) return run_loop(graphs, id, values);
    PerDevice results(graphs.size());
    std::vector<const ReferenceArray*> all;
    for (size_t d = 0; d < graphs.size(); ++d)
      if (is_collective(first)) all.push_back(&values[d][first.inputs[0]]);
    for (size_t d = 0; d < graphs.size(); ++d) {
      const Node& node = graphs[d]->node(id);
      if (is_collective(node)) {
        results[d] = {exchanged(node, all)};
        continue;
      }
      std::vector<const ReferenceArray*> operands;
      for (const ValueId value : node.inputs) operands.push_back(&values[d][value]);
      results[d] = evaluate_node(*graphs[d], node, operands);
    }
    return results;
  }

  PerDevice run_loop(const std::vector<const Graph*>& graphs, NodeId id,
                     const Values& values) const {
    const Loop loop(graphs[0]->node(id));
    std::vector<const Graph*> bodies;
    PerDevice carries(graphs.size()), results(graphs.size());
    for (size_t d = 0; d < graphs.size(); ++d) {
      const Node& node = graphs[d]->node(id);
      bodies.push_back(node.bodies[0].get());
      for (size_t i = 0; i < loop.carries(); ++i) carries[d].push_back(values[d][loop.initial(i)]);
      for (size_t k = 0; k < loop.results(); ++k) {
        const Type& type = graphs[d]->type(loop.result(k));
        results[d].push_back(
            {type.axes, std::vector<double>(static_cast<size_t>(type.elements()))});
      }
    }
    for (int64_t step = 0; step < loop.count(); ++step) {
      const int64_t index = loop.iteration(step);
      PerDevice inputs(graphs.size());
      for (size_t d = 0; d < graphs.size(); ++d)
        inputs[d] = iteration_inputs(loop, index, carries[d], values[d]);
      PerDevice outputs = run(bodies, std::move(inputs));
      for (size_t d = 0; d < graphs.size(); ++d) {
        for (size_t k = 0; k < results[d].size(); ++k) {
          const std::vector<double>& slice = outputs[d][loop.carries() + k].values;
          std::copy(slice.begin(), slice.end(),
                    results[d][k].values.begin() + index * static_cast<int64_t>(slice.size()));
        }
        outputs[d].resize(loop.carries());
        carries[d] = std::move(outputs[d]);
      }
    }
    for (size_t d = 0; d < graphs.size(); ++d)
      std::move(results[d].begin(), results[d].end(), std::back_inserter(carries[d]));
    return carries;
  }

  static Arrays iteration_inputs(const Loop& loop, int64_t index, const Arrays& carries,
                                 const IndexedVector<ValueId, ReferenceArray>& values) {
    Arrays inputs = {{{}, {static_cast<double>(index)}}};
    inputs.insert(inputs.end(), carries.begin(), carries.end());
    for (size_t i = 0; i < loop.slices(); ++i) {
      const ReferenceArray& stack = values[loop.stacked(i)];
      ReferenceArray slice = rows_of(stack, stack.axes[0].name, index, index + 1);
      slice.axes.erase(slice.axes.begin());
      inputs.push_back(std::move(slice));
    }
    for (size_t k = 0; k < loop.constants(); ++k) inputs.push_back(values[loop.constant(k)]);
    return inputs;
  }
};

// Whether both have the same nodes in the same order with the same types.
void check_alike(const Graph& a, const Graph& b) {
  CHECK(a.nodes().size() == b.nodes().size() && a.values().size() == b.values().size());
  for (const NodeId id : a.nodes().ids()) {
    const Node &left = a.node(id), &right = b.node(id);
    CHECK(left.op == right.op && left.inputs == right.inputs && left.outputs == right.outputs,
          "node {} is {} and {}", id, left.op->name, right.op->name);
    for (size_t i = 0; i < left.bodies.size(); ++i) check_alike(*left.bodies[i], *right.bodies[i]);
  }
  for (const ValueId id : a.values().ids())
    CHECK(a.type(id) == b.type(id), "value {} is {} and {}", id, a.type(id).text_sized(),
          b.type(id).text_sized());
}

}  // namespace

std::vector<double> shard_of(const std::vector<double>& global, const Type& type, const Mesh& mesh,
                             int64_t device) {
  const Type local = local_type(type, mesh);
  std::vector<double> part(static_cast<size_t>(local.elements()), 0.0);
  const bool holds = type.partial.kind != PartialKind::kSum ||
                     mesh.index_along(device, type.partial.mesh_axes) == 0;
  if (!holds) return part;
  each_place_on(type, mesh, device, [&](size_t from, size_t to) { part[to] = global[from]; });
  return part;
}

std::vector<double> assembled(const std::vector<std::vector<double>>& parts, const Type& type,
                              const Mesh& mesh) {
  // The terms of a part, each from the first device that has it.
  struct Part {
    int64_t device = 0;  // The first that has a term.
    std::map<int64_t, const std::vector<double>*> terms;
  };
  std::map<std::vector<int64_t>, Part> by_origin;
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const std::vector<double>& part = parts[device];
    Part& held = by_origin[shard_blocks(type, mesh, device)[0].global.origin];
    const int64_t term = mesh.index_along(device, type.partial.mesh_axes);
    if (held.terms.empty()) held.device = device;
    const auto [found, fresh] = held.terms.emplace(term, &part);
    if (!fresh && *found->second != part)
      fail("replicas of {} differ on device {}", type.text_sized(), device);
  }
  std::vector<double> global(static_cast<size_t>(type.elements()));
  for (const auto& [origin, held] : by_origin) {
    std::vector<double> whole = *held.terms.at(0);
    for (const auto& [term, part] : held.terms) {
      if (term == 0) continue;
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = type.partial.kind == PartialKind::kMax ? std::max(whole[i], (*part)[i])
                                                          : whole[i] + (*part)[i];
    }
    each_place_on(type, mesh, held.device,
                  [&](size_t to, size_t from) { global[to] = whole[from]; });
  }
  return global;
}

SimulatedMesh::SimulatedMesh(const Graph& traced, const Mesh& mesh, const LinkCosts& costs)
    : traced_(traced), mesh_(mesh) {
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    graphs_.push_back(lower(traced, mesh, device, costs));
    check_alike(graphs_.front(), graphs_.back());
  }
}

std::map<std::string, std::vector<double>> SimulatedMesh::run(const ReferenceInputs& inputs) const {
  std::vector<const Graph*> graphs;
  Lockstep::PerDevice parts(graphs_.size());
  for (size_t d = 0; d < graphs_.size(); ++d) {
    graphs.push_back(&graphs_[d]);
    for (const GraphInput& input : traced_.inputs()) {
      const Type& type = traced_.type(input.value);
      parts[d].push_back({local_type(type, mesh_).axes,
                          shard_of(inputs.at(input.name), type, mesh_, static_cast<int64_t>(d))});
    }
  }
  const Lockstep::PerDevice outputs = Lockstep().run(graphs, std::move(parts));
  std::map<std::string, std::vector<double>> results;
  for (size_t i = 0; i < traced_.outputs().size(); ++i) {
    std::vector<std::vector<double>> by_device;
    for (const Arrays& each : outputs) by_device.push_back(each[i].values);
    const GraphOutput& output = traced_.outputs()[i];
    results[output.name] = assembled(by_device, traced_.type(output.value), mesh_);
  }
  return results;
}

}  // namespace tessera
