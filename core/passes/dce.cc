// SPDX-License-Identifier: Apache-2.0
// Dead work dropped (simplify.h). What is read is found backwards and through the bodies of loops,
// where a carry may be read only by the next iteration: a fixed point.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

using Flags = std::vector<bool>;

bool flag(const Flags& flags, ValueId value) { return flags[static_cast<size_t>(value)]; }
void raise(Flags& flags, ValueId value) { flags[static_cast<size_t>(value)] = true; }

// Which parts of a loop are read, by position in their part.
struct LoopUse {
  Flags carries, slices, constants, results;
};

// Per value whether it is read, and per loop which parts of it are.
struct Use {
  Flags values;
  std::map<NodeId, LoopUse> loops;
};

Use find_use(const Graph& graph, Flags wanted);

LoopUse find_loop_use(const Loop& loop, const Flags& wanted) {
  const Graph& body = loop.body();
  LoopUse use;
  for (int64_t i = 0; i < loop.carries(); ++i) use.carries.push_back(flag(wanted, loop.last(i)));
  for (int64_t k = 0; k < loop.results(); ++k) use.results.push_back(flag(wanted, loop.result(k)));
  Flags in_body;
  for (bool grew = true; grew;) {
    Flags outputs(body.values().size(), false);
    for (int64_t i = 0; i < loop.carries(); ++i)
      if (use.carries[static_cast<size_t>(i)]) raise(outputs, loop.carry_out(i));
    for (int64_t k = 0; k < loop.results(); ++k)
      if (use.results[static_cast<size_t>(k)]) raise(outputs, loop.slice_out(k));
    in_body = find_use(body, std::move(outputs)).values;
    grew = false;
    for (int64_t i = 0; i < loop.carries(); ++i) {
      if (use.carries[static_cast<size_t>(i)] || !flag(in_body, loop.carry_in(i))) continue;
      use.carries[static_cast<size_t>(i)] = grew = true;
    }
  }
  for (int64_t i = 0; i < loop.slices(); ++i) use.slices.push_back(flag(in_body, loop.slice_in(i)));
  for (int64_t i = 0; i < loop.constants(); ++i)
    use.constants.push_back(flag(in_body, loop.constant_in(i)));
  return use;
}

Use find_use(const Graph& graph, Flags wanted) {
  Use use{.values = std::move(wanted), .loops = {}};
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    const bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId value) { return flag(use.values, value); });
    if (!used) continue;
    if (!is_repeat(node)) {
      for (const ValueId value : node.inputs) raise(use.values, value);
      continue;
    }
    const Loop loop(node);
    const LoopUse parts = find_loop_use(loop, use.values);
    for (int64_t i = 0; i < loop.carries(); ++i)
      if (parts.carries[static_cast<size_t>(i)]) raise(use.values, loop.initial(i));
    for (int64_t i = 0; i < loop.slices(); ++i)
      if (parts.slices[static_cast<size_t>(i)]) raise(use.values, loop.stacked(i));
    for (int64_t i = 0; i < loop.constants(); ++i)
      if (parts.constants[static_cast<size_t>(i)]) raise(use.values, loop.constant(i));
    use.loops.emplace(id, parts);
  }
  return use;
}

template <typename Visit>
void each_kept(const Flags& kept, const Visit& visit) {
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) visit(static_cast<int64_t>(i));
}

void copy_used(Rewriter& rewriter, const Graph& graph, const Use& use);

// The body with only the inputs and outputs that are kept, and without what then is dead.
Graph kept_body(const Loop& loop, const LoopUse& use) {
  const Graph& body = loop.body();
  Rewriter rewriter(body);
  const auto keep_input = [&](ValueId value) {
    const auto input = std::find_if(body.inputs().begin(), body.inputs().end(),
                                    [&](const GraphInput& in) { return in.value == value; });
    rewriter.set(value, rewriter.to().add_input(input->name, input->kind, body.type(value)));
  };
  keep_input(loop.index());
  each_kept(use.carries, [&](int64_t i) { keep_input(loop.carry_in(i)); });
  each_kept(use.slices, [&](int64_t i) { keep_input(loop.slice_in(i)); });
  each_kept(use.constants, [&](int64_t i) { keep_input(loop.constant_in(i)); });

  std::vector<ValueId> outputs;
  each_kept(use.carries, [&](int64_t i) { outputs.push_back(loop.carry_out(i)); });
  each_kept(use.results, [&](int64_t k) { outputs.push_back(loop.slice_out(k)); });
  Flags wanted(body.values().size(), false);
  for (const ValueId value : outputs) raise(wanted, value);
  copy_used(rewriter, body, find_use(body, std::move(wanted)));
  for (const ValueId value : outputs)
    rewriter.to().add_output("result " + std::to_string(rewriter.to().outputs().size()),
                             rewriter.at(value));
  return std::move(rewriter.to());
}

void copy_loop(Rewriter& rewriter, const Graph& graph, NodeId id, const LoopUse& use) {
  const Node& node = graph.node(id);
  const Loop loop(node);
  Node copy = node;
  copy.inputs.clear();
  copy.outputs.clear();
  const auto count = [](const Flags& flags) {
    return std::count(flags.begin(), flags.end(), true);
  };
  copy.attributes.set("carries", static_cast<int64_t>(count(use.carries)));
  copy.attributes.set("stacked", static_cast<int64_t>(count(use.slices)));
  copy.attributes.set("constants", static_cast<int64_t>(count(use.constants)));
  copy.bodies[0] = std::make_shared<const Graph>(kept_body(loop, use));
  const auto read = [&](ValueId value) { copy.inputs.push_back(rewriter.at(value)); };
  each_kept(use.carries, [&](int64_t i) { read(loop.initial(i)); });
  each_kept(use.slices, [&](int64_t i) { read(loop.stacked(i)); });
  each_kept(use.constants, [&](int64_t i) { read(loop.constant(i)); });

  std::vector<ValueId> outputs;
  each_kept(use.carries, [&](int64_t i) { outputs.push_back(loop.last(i)); });
  each_kept(use.results, [&](int64_t k) { outputs.push_back(loop.result(k)); });
  std::vector<Type> types;
  for (const ValueId value : outputs) types.push_back(graph.type(value));
  Graph& to = rewriter.to();
  const NodeId made = to.add_node(std::move(copy), types);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId value = to.node(made).outputs[i];
    to.value(value).name = graph.value(outputs[i]).name;
    rewriter.set(outputs[i], value);
  }
}

void copy_used(Rewriter& rewriter, const Graph& graph, const Use& use) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const std::vector<ValueId>& results = graph.node(id).outputs;
    const bool used = std::any_of(results.begin(), results.end(),
                                  [&](ValueId value) { return flag(use.values, value); });
    if (!used) continue;
    const auto loop = use.loops.find(id);
    if (loop != use.loops.end()) {
      copy_loop(rewriter, graph, id, loop->second);
    } else {
      rewriter.copy_node(id);
    }
  }
}

}  // namespace

Graph dce(const Graph& graph) {
  Flags wanted(graph.values().size(), false);
  for (const GraphOutput& output : graph.outputs()) raise(wanted, output.value);
  const Use use = find_use(graph, std::move(wanted));
  Rewriter rewriter(graph);
  rewriter.copy_inputs();
  copy_used(rewriter, graph, use);
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

}  // namespace tessera
