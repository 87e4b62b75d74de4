// SPDX-License-Identifier: Apache-2.0
// Copies of parameters in bf16 that outlive a step: the update of an f32 parameter stores it in
// both dtypes, and the casts that read it disappear. Before fuse_updates(). Linear in the graph.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/compile/fuse/fuse.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Type in_bf16(Type type) {
  type.dtype = DType::kBF16;
  return type;
}

const GraphInput& input_of(const Graph& graph, ValueId value) {
  return *std::ranges::find(graph.inputs(), value, &GraphInput::value);
}

// Replaces the casts to bf16 of some inputs of a graph by new inputs, in bodies of loops too.
class CastReplacer {
 public:
  CastReplacer(const Graph& graph, const ValueFlags& sources, InputKind kind)
      : graph_(graph), sources_(sources), kind_(kind), rewriter_(graph) {
    rewriter_.copy_inputs();
    for (const NodeId id : graph.nodes().ids()) {
      const Node& node = graph.node(id);
      if (is_replaced(node)) {
        rewriter_.set(node.outputs[0], copy_of(node.inputs[0]));
      } else if (is_repeat(node)) {
        add_loop(id);
      } else {
        rewriter_.copy_node(id);
      }
    }
    rewriter_.copy_outputs();
  }

  Rewriter& rewriter() { return rewriter_; }
  // The new inputs by the input of `graph` that they are copies of.
  const std::map<ValueId, ValueId>& copies() const { return copies_; }

 private:
  bool is_replaced(const Node& node) const {
    return node.op == &kCastOp && sources_[node.inputs[0]] &&
           graph_.type(node.outputs[0]).dtype == DType::kBF16;
  }

  ValueId copy_of(ValueId source) {
    const auto [at, is_new] = copies_.try_emplace(source);
    if (is_new)
      at->second = rewriter_.to().add_input(copy_name(input_of(graph_, source).name), kind_,
                                            in_bf16(graph_.type(source)));
    return at->second;
  }

  // Copies of slices follow the other slices, copies of constants the other constants.
  void add_loop(NodeId id) {
    Node node = rewriter_.mapped(id);
    const Loop loop(graph_.node(id));
    ValueFlags sources(loop.body().values().size());
    for (size_t i = loop.carries(); i < loop.operands(); ++i)
      sources[loop.operand_in(i)] = sources_[loop.operand(i)];
    CastReplacer body(loop.body(), sources, InputKind::kLoop);
    std::vector<ValueId> order = {body.rewriter_.at(loop.index())};
    node.inputs.clear();
    const auto add = [&](size_t begin, size_t count) {
      for (size_t i = begin; i < begin + count; ++i) {
        node.inputs.push_back(rewriter_.at(loop.operand(i)));
        order.push_back(body.rewriter_.at(loop.operand_in(i)));
      }
      const size_t before = node.inputs.size();
      for (size_t i = begin; i < begin + count; ++i) {
        const auto copy = body.copies_.find(loop.operand_in(i));
        if (copy == body.copies_.end()) continue;
        node.inputs.push_back(copy_of(loop.operand(i)));
        order.push_back(copy->second);
      }
      return count + node.inputs.size() - before;
    };
    add(0, loop.carries());
    node.attributes.set(key::kStacked, add(loop.carries(), loop.slices()));
    node.attributes.set(key::kConstants, add(loop.carries() + loop.slices(), loop.constants()));
    body.rewriter_.to().order_inputs(order);
    node.bodies[0] = std::make_shared<const Graph>(std::move(body.rewriter_.to()));
    rewriter_.add(std::move(node), graph_.node(id).outputs);
  }

  const Graph& graph_;
  const ValueFlags& sources_;
  InputKind kind_;
  Rewriter rewriter_;
  std::map<ValueId, ValueId> copies_;
};

bool has_casts_to_bf16(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    if (node.op == &kCastOp && graph.type(node.outputs[0]).dtype == DType::kBF16) return true;
    return is_repeat(node) && has_casts_to_bf16(Loop(node).body());
  });
}

}  // namespace

std::string copy_name(std::string_view parameter) { return fmt::format("bf16 of {}", parameter); }

Graph keep_copies(Graph lowered) {
  if (!has_casts_to_bf16(lowered) && is_in_order(lowered)) return lowered;
  ValueFlags sources(lowered.values().size());
  for (const GraphOutput& output : lowered.outputs()) {
    const NodeId producer = lowered.value(output.value).producer;
    if (!output.is_update || producer == kNone) continue;
    const GraphInput& input = *lowered.find_input(output.name);
    const bool updated = lowered.node(producer).op == &kAdamUpdateOp;
    if (updated && input.kind == InputKind::kParameter) sources[input.value] = true;
  }
  CastReplacer replacer(lowered, sources, InputKind::kState);
  Graph& graph = replacer.rewriter().to();
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope scope(graph, mesh, rules);
  const PhaseScope phase(Phase::kUpdate);
  for (const auto& [source, copy] : replacer.copies()) {
    const std::string& name = input_of(lowered, source).name;
    const Tensor next(&graph, replacer.rewriter().at(lowered.find_output(name)->value));
    graph.add_update(copy_name(name), cast(next, DType::kBF16).id());
  }
  return std::move(graph);
}

}  // namespace tessera
