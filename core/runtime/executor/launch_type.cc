// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/launch_type.h"

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Limits the text: updates of many parameters are one launch.
constexpr size_t kMostBytes = 400;

void append_ops(const Node& node, std::string& text) {
  if (node.bodies.empty()) {
    text += node.op->name;
    return;
  }
  text += "fused";
  for (const Node& inner : node.bodies[0]->nodes()) {
    text += ' ';
    text += inner.op->name;
  }
}

void append_types(const Graph& graph, const std::vector<ValueId>& values, std::string& text) {
  text += '(';
  std::string_view separator;
  for (const ValueId value : values) {
    text += separator;
    text += graph.type(value).text_sized();
    separator = ", ";
  }
  text += ')';
}

}  // namespace

std::string launch_type(const Graph& graph, const Node& node) {
  std::string text;
  append_ops(node, text);
  if (is_collective(node))
    fmt::format_to(std::back_inserter(text), " over {} ({} devices)",
                   fmt::join(node.attributes.get(key::kMeshAxes), "/"),
                   node.attributes.get(key::kGroup).size());
  if (node.attributes.get_or(key::kCausal, false)) text += " causal";
  text += ' ';
  append_types(graph, node.inputs, text);
  text += " -> ";
  append_types(graph, node.outputs, text);
  if (text.size() <= kMostBytes) return text;
  const uint32_t hash = crc32c(std::as_bytes(std::span(text)));
  return fmt::format("{}... #{:08x}", std::string_view(text).substr(0, kMostBytes), hash);
}

}  // namespace tessera
