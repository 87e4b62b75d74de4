// SPDX-License-Identifier: Apache-2.0
#include "core/graph/text.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

std::string_view kind_name(InputKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"parameter", "state", "batch", "scalar",
                                                      "loop"};
  return kNames[static_cast<size_t>(kind)];
}

class Printer {
 public:
  std::string print(const Graph& graph) {
    print_graph(graph, "");
    return std::move(text_);
  }

 private:
  void print_graph(const Graph& graph, const std::string& indent) {
    for (const GraphInput& input : graph.inputs())
      text_ += fmt::format("{}{} {} : {} {}\n", indent, value(graph, input.value), input.name,
                           kind_name(input.kind), graph.type(input.value).text_sized());
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
    for (const GraphOutput& output : graph.outputs())
      text_ += fmt::format("{}{} {} = {}\n", indent, output.is_update ? "update" : "output",
                           output.name, value(graph, output.value));
  }

  void print_node(const Graph& graph, const Node& node, const std::string& indent) {
    std::string line = indent;
    if (!node.outputs.empty()) line += values(graph, node.outputs) + " = ";
    line += fmt::format("{}({})", node.op->name, values(graph, node.inputs));
    if (!node.attributes.entries().empty()) line += fmt::format(" {{{}}}", node.attributes.text());
    if (!node.outputs.empty()) line += " :";
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
  static std::string values(const Graph& graph, const std::vector<ValueId>& ids) {
    std::vector<std::string> texts;
    for (const ValueId id : ids) texts.push_back(value(graph, id));
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  std::string text_;
};

enum class Look {
  kContraction,
  kElementwise,
  kReduction,
  kDataMovement,
  kCommunication,
  kComposite,
  kParameter,
  kInput,
  kOutput,
  kOtherPhase,
};

struct Style {
  std::string_view name;  // Name in the legend.
  std::string_view fill;
  std::string_view border;
};

// Styles, indexed by Look.
constexpr std::array<Style, 10> kStyles = {{{"contraction", "#dbe8ff", "#3b6fd4"},
                                            {"elementwise", "#e6f4e1", "#5a9e4b"},
                                            {"reduction", "#fff0d6", "#d98e1f"},
                                            {"data movement", "#f0f0f3", "#9a9aa5"},
                                            {"communication", "#fde0e3", "#d0384f"},
                                            {"composite", "#efe5fb", "#8250c8"},
                                            {"parameter", "#fff7c2", "#b89b00"},
                                            {"input", "#d8f2f5", "#2190a0"},
                                            {"output", "#dddde2", "#3a3a44"},
                                            {"from another phase", "#ffffff", "#9a9aa5"}}};

Look look_of(const Node& node) {
  switch (node.op->op_class) {
    case OpClass::kElementwise:
      return Look::kElementwise;
    case OpClass::kReduction:
      return Look::kReduction;
    case OpClass::kContraction:
      return Look::kContraction;
    case OpClass::kDataMovement:
    case OpClass::kView:
    case OpClass::kGenerator:
      return Look::kDataMovement;
    case OpClass::kReshard:
    case OpClass::kCollective:
      return Look::kCommunication;
    default:
      return Look::kComposite;
  }
}

// Constants are shown in the label of their reader.
bool is_constant(const Node& node) {
  return node.op->op_class == OpClass::kGenerator && node.attributes.has(key::kValue);
}

// A quoted DOT string. DOT treats backslashes in labels as escapes, so they are doubled.
std::string dot_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') result += '\\';
    if (character == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(character) >= ' ') {
      result += character;
    }
  }
  return result + '"';
}

// Formats bf16["batch/data=8"] without brackets and quotes.
std::string short_type(const Type& type) {
  std::string text = type.text_sized();
  std::erase(text, '"');
  std::erase(text, ']');
  std::replace(text.begin(), text.end(), '[', ' ');
  return text;
}

// Returns `name` without the layer path that precedes it.
std::string local_name(const std::string& name, const std::string& path) {
  const bool inside = !path.empty() && name.starts_with(path + ".");
  return inside ? name.substr(path.size() + 1) : name;
}

// Boxes in nested clusters, and edges. Identifiers are numbers; text of the graph appears only in
// quoted labels.
class Drawing {
 public:
  size_t add_cluster(size_t parent, const std::string& label) {
    clusters_.push_back({label, {}, {}});
    clusters_[parent].children.push_back(clusters_.size() - 1);
    return clusters_.size() - 1;
  }

  size_t add_box(size_t cluster, Look look, const std::string& label, const std::string& tooltip) {
    const Style& style = kStyles[static_cast<size_t>(look)];
    const bool round = look == Look::kParameter || look == Look::kInput;
    clusters_[cluster].boxes.push_back(fmt::format(
        "n{} [label={}, tooltip={}, fillcolor=\"{}\", color=\"{}\"{}]", boxes_, dot_quoted(label),
        dot_quoted(tooltip.empty() ? label : tooltip), style.fill, style.border,
        look == Look::kOtherPhase ? ", style=\"filled,dashed\""
        : round                   ? ", style=\"filled,rounded\""
                                  : ""));
    looks_.insert(look);
    return boxes_++;
  }

  void add_edge(size_t from, size_t to, bool pending) {
    edges_ += fmt::format("  n{} -> n{}{}\n", from, to,
                          pending ? " [style=dashed, color=\"#d0384f\"]" : "");
  }

  std::string text() const {
    std::string text =
        "digraph step {\n"
        "  graph [fontname=\"monospace\", fontsize=10, nodesep=0.15, ranksep=0.3, labelloc=t,\n"
        "         color=\"#c4c4ce\", fontcolor=\"#77778a\", nslimit=2, nslimit1=2, mclimit=0.5]\n"
        "  node [fontname=\"monospace\", fontsize=9, shape=box, style=filled, height=0.2,\n"
        "        margin=\"0.08,0.03\"]\n"
        "  edge [color=\"#8a8a99\", arrowsize=0.5]\n" +
        legend();
    print_cluster(text, 0, "  ");
    return text + edges_ + "}\n";
  }

 private:
  struct Cluster {
    std::string label;
    std::vector<std::string> boxes;
    std::vector<size_t> children;
  };

  // Returns the colours in use, as the label of the drawing.
  std::string legend() const {
    std::string cells;
    for (const Look look : looks_) {
      const Style& style = kStyles[static_cast<size_t>(look)];
      cells += fmt::format("<td bgcolor=\"{}\">{}</td>", style.fill, style.name);
    }
    return "  label=<<table border=\"0\" cellspacing=\"4\"><tr>" + cells +
           "<td>dashed: a pending sum or maximum</td></tr></table>>\n";
  }

  void print_cluster(std::string& text, size_t index, const std::string& indent) const {
    const Cluster& cluster = clusters_[index];
    for (const std::string& box : cluster.boxes) text += indent + box + '\n';
    for (const size_t child : cluster.children) {
      text += fmt::format("{}subgraph cluster_{} {{\n{}  label={}\n", indent, child, indent,
                          dot_quoted(clusters_[child].label));
      print_cluster(text, child, indent + "  ");
      text += indent + "}\n";
    }
  }

  std::vector<Cluster> clusters_{1};  // The first is the whole drawing.
  std::string edges_;
  std::set<Look> looks_;
  size_t boxes_ = 0;
};

// Draws one graph within a cluster. `path_above` is the layer path of the enclosing loop.
class GraphDrawer {
 public:
  GraphDrawer(Drawing& drawing, const Graph& graph, size_t root, std::string path_above)
      : drawing_(drawing), graph_(graph), root_(root), path_above_(std::move(path_above)) {
    has_phases_ = std::ranges::any_of(
        graph.nodes(), [&](const Node& node) { return node.phase != graph.nodes().front().phase; });
  }

  void draw() {
    for (const Node& node : graph_.nodes())
      if (!is_constant(node)) draw_node(node);
    for (const GraphOutput& output : graph_.outputs()) draw_output(output);
  }

 private:
  size_t child_cluster(size_t parent, const std::string& label) {
    const auto [found, added] = clusters_.try_emplace({parent, label}, 0);
    if (added) found->second = drawing_.add_cluster(parent, label);
    return found->second;
  }

  // Returns the cluster of a phase and layer path. The path of the enclosing loop is left out.
  size_t cluster_of(Phase phase, std::string path) {
    if (!path_above_.empty() && path.starts_with(path_above_))
      path = path.substr(std::min(path.size(), path_above_.size() + 1));
    size_t cluster = has_phases_ ? child_cluster(root_, std::string(phase_name(phase))) : root_;
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      cluster = child_cluster(cluster, path.substr(begin, end - begin));
      begin = end + 1;
    }
    return cluster;
  }

  void draw_node(const Node& node) {
    size_t cluster = cluster_of(node.phase, node.path);
    std::string label(node.op->name);
    for (const ValueId input : node.inputs)
      if (const Node* producer = producer_of(input); producer != nullptr && is_constant(*producer))
        label += fmt::format(" {}", producer->attributes.get(key::kValue));
    const bool is_loop = node.op->op_class == OpClass::kLoop;
    if (is_loop) {
      label += fmt::format(" x {}", node.attributes.get(key::kCount));
      cluster = drawing_.add_cluster(cluster, label);
    } else if (!node.bodies.empty()) {
      label += '\n' + ops_of(node);
    }
    for (const ValueId output : node.outputs) {
      const std::string name = local_name(graph_.value(output).name, node.path);
      label += '\n' + (name.empty() ? "" : name + " ") + short_type(graph_.type(output));
    }
    const size_t box = drawing_.add_box(cluster, look_of(node), label, tooltip(node));
    for (const ValueId output : node.outputs) boxes_[{node.phase, output}] = box;
    for (const ValueId input : node.inputs) {
      const Node* producer = producer_of(input);
      if (producer != nullptr && is_constant(*producer)) continue;
      const size_t source = source_box(input, node.phase, cluster, node.path);
      drawing_.add_edge(source, box, static_cast<bool>(graph_.type(input).partial));
    }
    if (!is_loop) return;
    for (const auto& body : node.bodies) GraphDrawer(drawing_, *body, cluster, node.path).draw();
  }

  // Returns the box an edge starts at: the producer's, or a label in the reader's cluster for graph
  // inputs and values of other phases.
  size_t source_box(ValueId id, Phase phase, size_t cluster, const std::string& path) {
    const auto made = boxes_.find({phase, id});
    if (made != boxes_.end()) return made->second;
    const auto [found, added] = labels_.try_emplace({cluster, id}, 0);
    if (!added) return found->second;
    const std::string name = graph_.describe(id);
    Look look = Look::kOtherPhase;
    for (const GraphInput& input : graph_.inputs())
      if (input.value == id)
        look = input.kind == InputKind::kParameter ? Look::kParameter : Look::kInput;
    const std::string label = local_name(name, path) + '\n' + short_type(graph_.type(id));
    return found->second = drawing_.add_box(cluster, look, label, name);
  }

  void draw_output(const GraphOutput& output) {
    const Node* producer = producer_of(output.value);
    const Phase phase = producer == nullptr ? Phase::kForward : producer->phase;
    const size_t cluster = cluster_of(phase, producer == nullptr ? "" : producer->path);
    const size_t source = source_box(output.value, phase, cluster, "");
    const std::string label = (output.is_update ? "update " : "output ") + output.name;
    drawing_.add_edge(source, drawing_.add_box(cluster, Look::kOutput, label, ""),
                      static_cast<bool>(graph_.type(output.value).partial));
  }

  const Node* producer_of(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer == kNone ? nullptr : &graph_.node(producer);
  }

  // Returns the ops of a fused node.
  static std::string ops_of(const Node& node) {
    std::string ops;
    for (const auto& body : node.bodies)
      for (const Node& inner : body->nodes())
        ops += (ops.empty() ? "" : " ") + std::string(inner.op->name);
    constexpr size_t kLongest = 60;
    return ops.size() > kLongest ? ops.substr(0, kLongest) + "…" : ops;
  }

  static std::string tooltip(const Node& node) {
    std::string text = node.path;
    if (node.site.known()) text += '\n' + node.site.text();
    if (!node.attributes.entries().empty()) text += '\n' + node.attributes.text();
    if (node.remat_clone) text += "\nrecomputed";
    return text;
  }

  Drawing& drawing_;
  const Graph& graph_;
  size_t root_;
  std::string path_above_;
  bool has_phases_ = false;
  std::map<std::pair<size_t, std::string>, size_t> clusters_;  // By parent and label.
  std::map<std::pair<Phase, ValueId>, size_t> boxes_;
  std::map<std::pair<size_t, ValueId>, size_t> labels_;  // By cluster.
};

}  // namespace

// Here and not in graph.cc because it needs OpDef, which is defined in terms of Graph.
std::string Graph::describe(ValueId id) const {
  const Value& described = value(id);
  if (!described.name.empty()) return described.name;
  if (described.producer == kNone)
    for (const GraphInput& input : inputs_)
      if (input.value == id) return input.name;
  const Node& producer = node(described.producer);
  if (producer.path.empty()) return std::string(producer.op->name);
  return fmt::format("{} of {}", producer.op->name, producer.path);
}

std::string graph_text(const Graph& graph) { return Printer().print(graph); }

std::string graph_hash(const Graph& graph) {
  const std::string text = graph_text(graph);
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

std::string graph_dot(const Graph& graph) {
  Drawing drawing;
  GraphDrawer(drawing, graph, 0, "").draw();
  return drawing.text();
}

}  // namespace tessera
