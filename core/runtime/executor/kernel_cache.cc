// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/kernel_cache.h"

#include <fmt/format.h>

#include "core/graph/op.h"

namespace tessera {
namespace {

// All that a kernel may depend on: op, attributes, types of operands and results, bodies.
void append_signature(const Graph& graph, const Node& node, std::string& text) {
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} {}", node.op->name, node.attributes.text());
  for (const ValueId value : node.inputs)
    fmt::format_to(out, " {}", graph.type(value).text_sized());
  text += " ->";
  for (const ValueId value : node.outputs)
    fmt::format_to(out, " {}", graph.type(value).text_sized());
  for (const auto& body : node.bodies) {
    text += " {";
    for (const GraphInput& input : body->inputs())
      fmt::format_to(out, "{}:{} ", input.value, body->type(input.value).text_sized());
    for (const Node& inner : body->nodes()) {
      append_signature(*body, inner, text);
      fmt::format_to(out, " {}={};", fmt::join(inner.outputs, ","), fmt::join(inner.inputs, ","));
    }
    for (const GraphOutput& output : body->outputs()) fmt::format_to(out, " {}", output.value);
    text += "}";
  }
}

}  // namespace

Kernel& KernelCache::get(const Graph& graph, const Node& node) {
  Kernel*& known = by_node_[&node];
  if (known != nullptr) return *known;
  std::string signature;
  append_signature(graph, node, signature);
  std::unique_ptr<Kernel>& kernel = by_signature_[signature];
  if (!kernel) kernel = device_.prepare(graph, node);
  known = kernel.get();
  return *known;
}

}  // namespace tessera
