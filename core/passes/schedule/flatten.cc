// SPDX-License-Identifier: Apache-2.0
#include "core/passes/schedule/flatten.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/passes/loop.h"
#include "core/passes/views.h"

namespace tessera {
namespace {

// The node of `helpers` that copies a value of this type.
NodeId copy_node(Graph& helpers, const Type& type) {
  for (NodeId id = 0; id < static_cast<NodeId>(helpers.nodes().size()); ++id) {
    const Node& node = helpers.node(id);
    if (node.op == &kCopyOp && helpers.type(node.outputs[0]) == type) return id;
  }
  const std::string name = fmt::format("copied {}", helpers.inputs().size());
  Node node;
  node.op = &kCopyOp;
  node.inputs = {helpers.add_input(name, InputKind::kLoop, type)};
  return helpers.add_node(std::move(node), {type});
}

// The node that gives all indices of a loop.
NodeId index_node(Graph& helpers, const std::string& axis, int64_t count) {
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope scope(helpers, mesh, rules);
  return helpers.value(iota(Axis{.name = axis, .size = count, .split = {}}).id()).producer;
}

// Per value: whether loops alone read it, slice by slice.
std::vector<bool> find_sliced(const Graph& graph) {
  std::vector<bool> sliced(graph.values().size(), true);
  const auto whole = [&](ValueId value) { sliced[static_cast<size_t>(value)] = false; };
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) {
      const Loop loop(node);
      for (int64_t i = 0; i < loop.carries(); ++i) whole(loop.initial(i));
      for (int64_t i = 0; i < loop.constants(); ++i) whole(loop.constant(i));
    } else {
      for (const ValueId value : node.inputs) whole(value);
    }
  }
  for (const GraphOutput& output : graph.outputs()) whole(output.value);
  return sliced;
}

class Flattener {
 public:
  Flattener(std::shared_ptr<const Graph> graph, const KernelFacts& facts) : facts_(facts) {
    program_.graph = std::move(graph);
    program_.helpers = std::make_shared<Graph>();
  }

  FlatProgram flatten() {
    const Graph& graph = *program_.graph;
    std::vector<FlatValue> values(graph.values().size());
    for (const GraphInput& input : graph.inputs()) {
      const FlatValue value = new_value(graph.type(input.value).bytes());
      FlatBuffer& buffer = program_.buffers[static_cast<size_t>(value.buffer)];
      buffer.is_input = true;
      buffer.persistent = input.kind == InputKind::kParameter || input.kind == InputKind::kState;
      values[static_cast<size_t>(input.value)] = value;
      program_.inputs.push_back(value);
    }
    run(graph, values);
    for (const GraphOutput& output : graph.outputs())
      program_.outputs.push_back(values[static_cast<size_t>(output.value)]);
    return std::move(program_);
  }

 private:
  FlatValue new_value(int64_t bytes) {
    program_.buffers.push_back({.bytes = bytes});
    return {static_cast<BufferId>(program_.buffers.size()) - 1, 0, bytes};
  }

  void run(const Graph& graph, std::vector<FlatValue>& values) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      const Node& node = graph.node(id);
      if (is_repeat(node)) {
        run_loop(graph, node, values);
      } else if (const std::optional<int64_t> offset = view_offset(graph, node)) {
        FlatValue view = values[static_cast<size_t>(node.inputs[0])];
        view.offset += *offset;
        view.bytes = graph.type(node.outputs[0]).bytes();
        values[static_cast<size_t>(node.outputs[0])] = view;
      } else {
        launch(graph, id, values);
      }
    }
  }

  void launch(const Graph& graph, NodeId id, std::vector<FlatValue>& values) {
    const Node& node = graph.node(id);
    FlatLaunch launch{.graph = &graph, .node = id, .inputs = {}, .outputs = {}};
    for (const ValueId value : node.inputs)
      launch.inputs.push_back(values[static_cast<size_t>(value)]);
    for (const ValueId value : node.outputs) {
      values[static_cast<size_t>(value)] = new_value(graph.type(value).bytes());
      launch.outputs.push_back(values[static_cast<size_t>(value)]);
    }
    append(std::move(launch));
  }

  void append(FlatLaunch launch) {
    const Node& node = launch.graph->node(launch.node);
    const int64_t scratch = facts_.scratch_bytes ? facts_.scratch_bytes(*launch.graph, node) : 0;
    if (scratch > 0) launch.scratch = new_value(scratch).buffer;
    program_.launches.push_back(std::move(launch));
  }

  FlatValue part(FlatValue whole, int64_t number, int64_t bytes) const {
    if (whole.stack != kNone)
      return stacks_[static_cast<size_t>(whole.stack)][static_cast<size_t>(number)];
    return {whole.buffer, whole.offset + number * bytes, bytes};
  }

  // Room for a loop's result: one buffer, or a list of slices if that will do.
  FlatValue new_result(const Graph& graph, ValueId result, int64_t count, int64_t bytes) {
    const auto [sliced, fresh] = sliced_.try_emplace(&graph);
    if (fresh) sliced->second = find_sliced(graph);
    if (!sliced->second[static_cast<size_t>(result)]) return new_value(count * bytes);
    stacks_.emplace_back(static_cast<size_t>(count));
    return {.stack = static_cast<int32_t>(stacks_.size()) - 1};
  }

  void run_loop(const Graph& graph, const Node& node, std::vector<FlatValue>& values) {
    const Loop loop(node);
    const Graph& body = loop.body();
    const auto outer = [&](ValueId value) -> FlatValue& {
      return values[static_cast<size_t>(value)];
    };
    std::vector<FlatValue> inner(body.values().size());
    const auto in = [&](ValueId value) -> FlatValue& { return inner[static_cast<size_t>(value)]; };
    const auto bytes = [&](ValueId value) { return body.type(value).bytes(); };

    std::vector<FlatValue> carries;
    for (int64_t i = 0; i < loop.carries(); ++i) carries.push_back(outer(loop.initial(i)));
    for (int64_t k = 0; k < loop.results(); ++k)
      outer(loop.result(k)) =
          new_result(graph, loop.result(k), loop.count(), bytes(loop.slice_out(k)));
    for (int64_t i = 0; i < loop.constants(); ++i)
      in(loop.constant_in(i)) = outer(loop.constant(i));
    const FlatValue indices = loop_indices(loop);
    for (int64_t step = 0; step < loop.count(); ++step) {
      const int64_t iteration = loop.iteration(step);
      in(loop.index()) = part(indices, iteration, bytes(loop.index()));
      for (int64_t i = 0; i < loop.carries(); ++i)
        in(loop.carry_in(i)) = carries[static_cast<size_t>(i)];
      for (int64_t i = 0; i < loop.slices(); ++i)
        in(loop.slice_in(i)) = part(outer(loop.stacked(i)), iteration, bytes(loop.slice_in(i)));
      run(body, inner);
      for (int64_t k = 0; k < loop.results(); ++k)
        put_slice(outer(loop.result(k)), iteration, in(loop.slice_out(k)),
                  body.type(loop.slice_out(k)));
      for (int64_t i = 0; i < loop.carries(); ++i)
        carries[static_cast<size_t>(i)] = in(loop.carry_out(i));
    }
    for (int64_t i = 0; i < loop.carries(); ++i)
      outer(loop.last(i)) = carries[static_cast<size_t>(i)];
  }

  // All indices of a loop, if its body reads them.
  FlatValue loop_indices(const Loop& loop) {
    const Graph& body = loop.body();
    bool read = false;
    for (const Node& node : body.nodes())
      read = read ||
             std::find(node.inputs.begin(), node.inputs.end(), loop.index()) != node.inputs.end();
    for (const GraphOutput& output : body.outputs()) read = read || output.value == loop.index();
    if (!read) return {};
    const FlatValue all = new_value(loop.count() * body.type(loop.index()).bytes());
    const NodeId node = index_node(*program_.helpers, loop.axis(), loop.count());
    append({.graph = program_.helpers.get(), .node = node, .inputs = {}, .outputs = {all}});
    return all;
  }

  void put_slice(FlatValue result, int64_t iteration, FlatValue slice, const Type& type) {
    if (result.stack != kNone) {
      stacks_[static_cast<size_t>(result.stack)][static_cast<size_t>(iteration)] = slice;
    } else {
      lay(slice, part(result, iteration, slice.bytes), type);
    }
  }

  // Has `value` lie at `place`, by writing it there in the first place or by a copy.
  void lay(FlatValue value, FlatValue place, const Type& type) {
    FlatBuffer& buffer = program_.buffers[static_cast<size_t>(value.buffer)];
    const bool whole = value.offset == 0 && value.bytes == buffer.bytes;
    if (whole && buffer.parent == kNone && !buffer.is_input) {
      buffer.parent = place.buffer;
      buffer.parent_offset = place.offset;
    } else {
      add_copy(program_, type, value, place);
    }
  }

  const KernelFacts& facts_;
  FlatProgram program_;
  std::vector<std::vector<FlatValue>> stacks_;
  std::map<const Graph*, std::vector<bool>> sliced_;
};

}  // namespace

FlatValue FlatProgram::root(FlatValue value) const {
  for (;;) {
    const FlatBuffer& buffer = buffers[static_cast<size_t>(value.buffer)];
    if (buffer.parent == kNone) return value;
    value = {buffer.parent, value.offset + buffer.parent_offset, value.bytes};
  }
}

void add_copy(FlatProgram& program, const Type& type, FlatValue from, FlatValue to) {
  const NodeId node = copy_node(*program.helpers, type);
  program.launches.push_back(
      {.graph = program.helpers.get(), .node = node, .inputs = {from}, .outputs = {to}});
}

FlatProgram flatten(std::shared_ptr<const Graph> graph, const KernelFacts& facts) {
  return Flattener(std::move(graph), facts).flatten();
}

}  // namespace tessera
