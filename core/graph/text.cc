// SPDX-License-Identifier: Apache-2.0
#include "core/graph/text.h"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

std::string_view kind_name(InputKind kind) {
  switch (kind) {
    case InputKind::kParameter:
      return "parameter";
    case InputKind::kState:
      return "state";
    case InputKind::kBatch:
      return "batch";
    case InputKind::kScalar:
      return "scalar";
    case InputKind::kLoop:
      return "loop";
  }
  return "";
}

class Printer {
 public:
  std::string print(const Graph& graph) {
    print_graph(graph, "");
    return std::move(text_);
  }

 private:
  void print_graph(const Graph& graph, const std::string& indent) {
    for (const GraphInput& input : graph.inputs()) {
      text_ += fmt::format("{}{} {} : {} {}\n", indent, value(graph, input.value), input.name,
                           kind_name(input.kind), graph.type(input.value).text_sized());
    }
    std::string_view path;
    Phase phase = Phase::kForward;
    bool first = true;
    for (const Node& node : graph.nodes()) {
      if (first || node.path != path || node.phase != phase) {
        path = node.path;
        phase = node.phase;
        text_ += fmt::format("{}# {} {}\n", indent, phase_name(phase), path);
        first = false;
      }
      print_node(graph, node, indent);
    }
    for (const GraphOutput& output : graph.outputs()) {
      text_ += fmt::format("{}{} {} = {}\n", indent, output.is_update ? "update" : "output",
                           output.name, value(graph, output.value));
    }
  }

  void print_node(const Graph& graph, const Node& node, const std::string& indent) {
    std::string line = indent;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (i > 0) line += ", ";
      line += value(graph, node.outputs[i]);
    }
    line += fmt::format(" = {}(", node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i > 0) line += ", ";
      line += value(graph, node.inputs[i]);
    }
    line += ')';
    if (!node.attributes.entries().empty()) line += fmt::format(" {{{}}}", node.attributes.text());
    line += " :";
    for (const ValueId output : node.outputs) line += ' ' + graph.type(output).text_sized();
    if (node.remat_block != kNone) line += fmt::format("  remat {}", node.remat_block);
    if (node.remat_clone) line += "  recomputed";
    if (node.site.known()) line += fmt::format("  @ {}", node.site.text());
    text_ += line + '\n';
    for (const auto& body : node.bodies) {
      text_ += indent + "  {\n";
      print_graph(*body, indent + "    ");
      text_ += indent + "  }\n";
    }
  }

  // "%12:scores": the value's id and name.
  static std::string value(const Graph& graph, ValueId id) {
    const Value& described = graph.value(id);
    if (described.name.empty() || described.producer == kNone) return fmt::format("%{}", id);
    return fmt::format("%{}:{}", id, described.name);
  }

  std::string text_;
};

}  // namespace

// Here and not in graph.cc because it needs OpDef, which is defined in terms of Graph.
std::string Graph::describe(ValueId id) const {
  const Value& described = value(id);
  if (!described.name.empty()) return described.name;
  if (described.producer == kNone) {
    for (const GraphInput& input : inputs_)
      if (input.value == id) return input.name;
  }
  const Node& producer = node(described.producer);
  if (producer.path.empty()) return std::string(producer.op->name);
  return fmt::format("{} of {}", producer.op->name, producer.path);
}

std::string graph_text(const Graph& graph) { return Printer().print(graph); }

std::string graph_hash(const Graph& graph) {
  const std::string text = graph_text(graph);
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

}  // namespace tessera
