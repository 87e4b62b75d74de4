// SPDX-License-Identifier: Apache-2.0
#include "core/compile/numerics.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

SharedType f64_type(const SharedType& type) {
  if (!is_floating(type->dtype) || type->dtype == DType::kF64) return type;
  Type wide = *type;
  wide.dtype = DType::kF64;
  return wide;
}

bool is_fed(const GraphInput& input) {
  return input.kind == InputKind::kBatch || input.kind == InputKind::kScalar;
}

void cast_fed_inputs(const Graph& graph, Rewriter& rewriter) {
  for (const GraphInput& input : graph.inputs()) {
    const SharedType& type = graph.value(input.value).type;
    if (!is_fed(input) || !is_floating(type->dtype)) continue;
    Node cast{.op = &kCastOp, .inputs = {rewriter.at(input.value)}};
    cast.attributes.set(key::kDtype, DType::kF64);
    const NodeId id = rewriter.to().add_node(std::move(cast), {f64_type(type)});
    rewriter.set(input.value, rewriter.to().node(id).outputs.front());
  }
}

}  // namespace

Graph in_f64(const Graph& compiled) {
  Rewriter rewriter(compiled);
  for (const GraphInput& input : compiled.inputs()) {
    const SharedType& type = compiled.value(input.value).type;
    rewriter.copy_input(input, is_fed(input) ? type : f64_type(type));
  }
  cast_fed_inputs(compiled, rewriter);
  for (const NodeId id : compiled.nodes().ids()) {
    Node node = rewriter.mapped(id);
    for (auto& body : node.bodies) body = std::make_shared<const Graph>(in_f64(*body));
    std::vector<SharedType> types;
    for (const ValueId output : compiled.node(id).outputs)
      types.push_back(f64_type(compiled.value(output).type));
    rewriter.add(std::move(node), compiled.node(id).outputs, types);
  }
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

}  // namespace tessera
