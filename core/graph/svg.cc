// SPDX-License-Identifier: Apache-2.0
#include "core/graph/svg.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/graph/layered.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

constexpr double kTitleSize = 11.0;
constexpr double kTypeSize = 9.0;
constexpr double kLineHeight = 13.0;
constexpr double kGlyph = 0.605;  // Width of a monospaced character, in its size.
constexpr double kMargin = 16.0;

struct Style {
  std::string_view name;
  std::string_view fill;
  std::string_view stroke;
};

constexpr Style kContraction{"contraction", "#dbe8ff", "#3b6fd4"};
constexpr Style kElementwise{"elementwise", "#e6f4e1", "#5a9e4b"};
constexpr Style kReduction{"reduction", "#fff0d6", "#d98e1f"};
constexpr Style kMovement{"movement", "#f0f0f3", "#9a9aa5"};
constexpr Style kReshard{"reshard", "#fde0e3", "#d0384f"};
constexpr Style kComposite{"composite", "#efe5fb", "#8250c8"};
constexpr Style kParameter{"parameter", "#fff7c2", "#b89b00"};
constexpr Style kInput{"input", "#d8f2f5", "#2190a0"};
constexpr Style kOutput{"output", "#3a3a44", "#3a3a44"};
constexpr Style kElsewhere{"from another phase", "#ffffff", "#9a9aa5"};
constexpr Style kLayer{"", "none", "#c4c4ce"};

const Style& style_of(const OpDef& op) {
  if (op.name == "reshard") return kReshard;
  switch (op.op_class) {
    case OpClass::kElementwise:
      return kElementwise;
    case OpClass::kReduction:
      return kReduction;
    case OpClass::kContraction:
      return kContraction;
    case OpClass::kMovement:
    case OpClass::kView:
    case OpClass::kGenerator:
      return kMovement;
    case OpClass::kOther:
      return kComposite;
  }
  return kComposite;
}

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "";
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char character : text) {
    if (character == '&') safe += "&amp;";
    if (character == '<') safe += "&lt;";
    if (character == '>') safe += "&gt;";
    if (character == '"') safe += "&quot;";
    if (std::string_view("&<>\"").find(character) == std::string_view::npos) safe += character;
  }
  return safe;
}

// bf16["batch/data=8"] without its brackets and quotes.
std::string short_type(const Type& type) {
  std::string text = type.text_sized();
  std::erase(text, '"');
  std::erase(text, ']');
  std::replace(text.begin(), text.end(), '[', ' ');
  return text;
}

// What is drawn in a box, beside its geometry.
struct Face {
  const Style* style = &kLayer;
  std::string title;
  std::vector<std::string> lines;  // Below the title, small.
  std::string tip;                 // Shown under the pointer.
};

// Boxes and wires of a graph and the bodies in it.
class Scene {
 public:
  explicit Scene(const Graph& graph) {
    add_box(-1, {});
    add_graph(graph, 0, "");
    arrange(boxes_, wires_);
  }

  std::string draw() const;

 private:
  int add_box(int parent, Face face) {
    Box box{.parent = parent};
    double characters = static_cast<double>(face.title.size()) * kTitleSize;
    for (const std::string& line : face.lines) {
      characters = std::max(characters, static_cast<double>(line.size()) * kTypeSize);
    }
    box.width = characters * kGlyph + 16.0;
    box.height = kLineHeight * static_cast<double>(face.lines.size() + 1) + 8.0;
    boxes_.push_back(box);
    faces_.push_back(std::move(face));
    return static_cast<int>(boxes_.size()) - 1;
  }

  int add_layer(int parent, const std::string& title) {
    const int box = add_box(parent, {.style = &kLayer, .title = title});
    boxes_[static_cast<size_t>(box)].header = kLineHeight;
    return box;
  }

  void add_graph(const Graph& graph, int root, const std::string& path_above);
  std::vector<Box> boxes_;
  std::vector<Face> faces_;  // Of each box.
  std::vector<Wire> wires_;
  std::vector<bool> pending_;  // Of each wire: it carries a partial value, and is dashed.

  friend class GraphScene;
};

// Adds one graph's nodes below a box.
class GraphScene {
 public:
  GraphScene(Scene& scene, const Graph& graph, int root, const std::string& path_above)
      : scene_(scene), graph_(graph), root_(root), path_above_(path_above) {
    bool phased = false;
    for (const Node& node : graph.nodes()) phased |= node.phase != graph.nodes().front().phase;
    phased_ = phased;
  }

  void add() {
    for (const Node& node : graph_.nodes()) {
      if (!inlined(node)) add_node(node);
    }
    for (const GraphOutput& output : graph_.outputs()) add_output(output);
  }

 private:
  // Constants are said in the title of what reads them.
  static bool inlined(const Node& node) { return node.op->name == "constant"; }

  int phase_box(Phase phase) {
    if (!phased_) return root_;
    const auto [found, added] = phases_.try_emplace(phase, 0);
    if (added) found->second = scene_.add_layer(root_, std::string(phase_name(phase)));
    return found->second;
  }

  // Whether `box` is `outer` or within it.
  bool within(int box, int outer) const {
    while (box > outer) box = scene_.boxes_[static_cast<size_t>(box)].parent;
    return box == outer;
  }

  // Whether the node reads, by way of nodes outside the layer box, what the box holds: it can then
  // not stand in it without a wire running upwards.
  bool returns_to(int layer, const Node& node) const {
    std::set<NodeId> seen;
    std::vector<NodeId> outside;
    const auto visit = [&](const Node& reader, bool from_outside) {
      for (const ValueId input : reader.inputs) {
        const NodeId producer = graph_.value(input).producer;
        const auto box = node_boxes_.find(producer);
        if (box == node_boxes_.end() || box->second < layer) continue;  // Older than the box.
        const bool inside = within(box->second, layer);
        if (inside && from_outside) return true;
        if (!inside && seen.insert(producer).second) outside.push_back(producer);
      }
      return false;
    };
    if (visit(node, false)) return true;
    while (!outside.empty()) {
      const NodeId id = outside.back();
      outside.pop_back();
      if (visit(graph_.node(id), true)) return true;
    }
    return false;
  }

  // Whether the node's layer goes on in this box: it has not been left since, or the node reads
  // what it holds.
  bool continues(int layer, const Node& node) const {
    if (returns_to(layer, node)) return false;
    if (within(last_layer_, layer)) return true;
    for (const ValueId input : node.inputs) {
      const auto box = node_boxes_.find(graph_.value(input).producer);
      if (box != node_boxes_.end() && within(box->second, layer)) return true;
    }
    return false;
  }

  // The box of the node's layer, made with those around it where needed: a layer that speaks again
  // later has a second box. What the path of the enclosing loop says is left out.
  int layer_of(const Node& node) {
    std::string path = node.path;
    if (!path_above_.empty() && path.starts_with(path_above_)) {
      path = path.substr(std::min(path.size(), path_above_.size() + 1));
    }
    int layer = phase_box(node.phase);
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      const std::string name = path.substr(begin, end - begin);
      const auto [found, added] = layers_.try_emplace({layer, name}, 0);
      if (added || !continues(found->second, node)) found->second = scene_.add_layer(layer, name);
      layer = found->second;
      begin = end + 1;
    }
    last_layer_ = layer;
    return layer;
  }

  // A name without the layer path it stands in.
  static std::string local_name(const std::string& name, const std::string& path) {
    const bool inside = !path.empty() && name.starts_with(path + ".");
    return inside ? name.substr(path.size() + 1) : name;
  }

  void add_node(const Node& node) {
    const int layer = layer_of(node);
    std::vector<int> sources;  // Made before the node, so that they stand above it.
    std::vector<ValueId> read;
    std::string title(node.op->name);
    for (const ValueId input : node.inputs) {
      const NodeId producer = graph_.value(input).producer;
      if (producer != kNone && inlined(graph_.node(producer))) {
        title += fmt::format(" {}", graph_.node(producer).attributes.get<double>("value"));
        continue;
      }
      sources.push_back(source_box(input, node.phase, layer, node.path));
      read.push_back(input);
    }
    Face face{.style = &style_of(*node.op), .title = title, .tip = tip(node)};
    for (const ValueId output : node.outputs) {
      const std::string name = local_name(graph_.value(output).name, node.path);
      face.lines.push_back((name.empty() ? "" : name + " ") + short_type(graph_.type(output)));
    }
    if (node.op->name == "fused") face.lines.insert(face.lines.begin(), body_ops(node));
    const bool opens = node.op->name == "repeat";
    if (opens) face.title += fmt::format(" x {}", node.attributes.get<int64_t>("count"));
    const int box = scene_.add_box(layer, std::move(face));
    if (opens) {
      scene_.boxes_[static_cast<size_t>(box)].header =
          kLineHeight * static_cast<double>(node.outputs.size() + 1);
      for (const auto& body : node.bodies) GraphScene(scene_, *body, box, node.path).add();
    }
    node_boxes_[graph_.value(node.outputs.front()).producer] = box;
    for (const ValueId output : node.outputs) boxes_[{node.phase, output}] = box;
    for (size_t i = 0; i < sources.size(); ++i) add_wire(sources[i], box, read[i]);
  }

  void add_wire(int from, int to, ValueId value) {
    scene_.wires_.push_back({from, to, {}});
    scene_.pending_.push_back(static_cast<bool>(graph_.type(value).partial));
  }

  // The box a value comes from: its producer's, or a label in the reader's layer for inputs and for
  // what another phase made.
  int source_box(ValueId id, Phase phase, int layer, const std::string& path) {
    const auto made = boxes_.find({phase, id});
    if (made != boxes_.end()) return made->second;
    const auto [found, added] = labels_.try_emplace({layer, id}, 0);
    if (!added) return found->second;
    Face face{.style = &kElsewhere,
              .title = local_name(graph_.describe(id), path),
              .lines = {short_type(graph_.type(id))},
              .tip = graph_.describe(id)};
    for (const GraphInput& input : graph_.inputs()) {
      if (input.value != id) continue;
      face.style = input.kind == InputKind::kParameter ? &kParameter : &kInput;
      face.title = local_name(input.name, path);
    }
    return found->second = scene_.add_box(layer, std::move(face));
  }

  // Below what it fetches, in the same layer.
  void add_output(const GraphOutput& output) {
    const NodeId producer = graph_.value(output.value).producer;
    const Phase phase = producer == kNone ? Phase::kForward : graph_.node(producer).phase;
    const int source = source_box(output.value, phase, phase_box(phase), "");
    const int layer = scene_.boxes_[static_cast<size_t>(source)].parent;
    const std::string title = (output.is_update ? "update " : "output ") + output.name;
    add_wire(source, scene_.add_box(layer, {.style = &kOutput, .title = title}), output.value);
  }

  static std::string body_ops(const Node& node) {
    std::string ops;
    for (const auto& body : node.bodies) {
      for (const Node& inner : body->nodes()) {
        ops += (ops.empty() ? "" : " ") + std::string(inner.op->name);
      }
    }
    constexpr size_t kLongest = 60;
    return ops.size() > kLongest ? ops.substr(0, kLongest) + "…" : ops;
  }

  static std::string tip(const Node& node) {
    std::string text = node.path;
    if (node.site.known()) text += fmt::format("\n{}", node.site.text());
    if (!node.attributes.entries().empty()) text += fmt::format("\n{}", node.attributes.text());
    if (node.remat_clone) text += "\nrecomputed";
    return text;
  }

  Scene& scene_;
  const Graph& graph_;
  int root_;
  std::string path_above_;
  bool phased_ = false;
  std::map<Phase, int> phases_;
  std::map<std::pair<int, std::string>, int> layers_;  // By the box around and the name.
  std::map<NodeId, int> node_boxes_;
  int last_layer_ = 0;
  std::map<std::pair<Phase, ValueId>, int> boxes_;
  std::map<std::pair<int, ValueId>, int> labels_;  // By the box around.
};

void Scene::add_graph(const Graph& graph, int root, const std::string& path_above) {
  GraphScene(*this, graph, root, path_above).add();
}

std::string path_of(const std::vector<Point>& route) {
  std::string path = fmt::format("M{:.1f},{:.1f}", route[0].x, route[0].y);
  for (size_t i = 1; i < route.size(); ++i) {
    const Point &a = route[i - 1], &b = route[i];
    if (i % 2 == 0) {
      path += fmt::format(" L{:.1f},{:.1f}", b.x, b.y);  // Straight through a row.
      continue;
    }
    const double bend = std::max(12.0, (b.y - a.y) / 2.0);
    path += fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", a.x, a.y + bend, b.x,
                        b.y - bend, b.x, b.y);
  }
  return path;
}

std::string text_at(double x, double y, double size, std::string_view fill, std::string_view text,
                    std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\"{}>{}</text>\n",
                     x, y, size, fill, more, escaped(text));
}

std::string box_svg(const Box& box, const Face& face, bool parent) {
  const bool layer = face.style == &kLayer;
  const double radius = face.style == &kParameter || face.style == &kInput ? 10.0 : 4.0;
  std::string svg = fmt::format(
      "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "rx=\"{}\" fill=\"{}\" stroke=\"{}\"{}{}/>\n",
      escaped(face.tip.empty() ? face.title : face.tip), box.corner.x, box.corner.y, box.width,
      box.height, radius, face.style->fill, face.style->stroke,
      parent && !layer ? " fill-opacity=\"0.35\"" : "",
      face.style == &kElsewhere ? " stroke-dasharray=\"3 2\"" : "");
  double y = box.corner.y + kLineHeight + 1.0;
  const std::string_view ink = face.style == &kOutput ? "#ffffff" : layer ? "#77778a" : "#1d1d26";
  svg += text_at(box.corner.x + 8.0, y, kTitleSize, ink, face.title, " font-weight=\"bold\"");
  for (const std::string& line : face.lines) {
    y += kLineHeight;
    svg += text_at(box.corner.x + 8.0, y, kTypeSize, "#55555f", line);
  }
  return svg + "</g>\n";
}

// What the colours in use mean; `width` receives how much room that took.
std::string legend_svg(const std::vector<Face>& faces, double& width) {
  constexpr double kSwatch = 16.0, kBetween = 18.0;
  std::string svg;
  double x = kMargin;
  const auto say = [&](std::string_view text) {
    svg += text_at(x, kMargin + 9.0, kTypeSize, "#55555f", text);
    x += static_cast<double>(text.size()) * kTypeSize * kGlyph + kBetween;
  };
  for (const Style* style : {&kContraction, &kElementwise, &kReduction, &kMovement, &kReshard,
                             &kComposite, &kParameter, &kInput, &kOutput, &kElsewhere}) {
    const bool used = std::any_of(faces.begin(), faces.end(),
                                  [&](const Face& face) { return face.style == style; });
    if (!used) continue;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"10\" rx=\"2\" "
        "fill=\"{}\" stroke=\"{}\"/>\n",
        x, kMargin, style->fill, style->stroke);
    x += kSwatch;
    say(style->name);
  }
  say("dashed: a pending sum or maximum");
  width = x;
  return svg;
}

std::string Scene::draw() const {
  constexpr double kLegendHeight = 24.0;
  double legend_width = 0.0;
  const std::string legend = legend_svg(faces_, legend_width);
  const double width = std::max(boxes_[0].width + 2 * kMargin, legend_width);
  const double height = boxes_[0].height + kLegendHeight + 2 * kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, "
      "monospace\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height, width, height);
  svg += legend;
  svg += fmt::format("<g transform=\"translate({:.1f},{:.1f})\">\n",
                     (width - boxes_[0].width) / 2.0, kMargin + kLegendHeight);
  std::vector<bool> parent(boxes_.size(), false);
  for (size_t i = 1; i < boxes_.size(); ++i) parent[static_cast<size_t>(boxes_[i].parent)] = true;
  for (size_t i = 1; i < boxes_.size(); ++i) {
    if (parent[i]) svg += box_svg(boxes_[i], faces_[i], true);
  }
  for (size_t i = 0; i < wires_.size(); ++i) {
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"{}/>\n",
                       path_of(wires_[i].route), pending_[i] ? "#d0384f" : "#8a8a99",
                       pending_[i] ? " stroke-dasharray=\"4 3\"" : "");
  }
  for (size_t i = 1; i < boxes_.size(); ++i) {
    if (!parent[i]) svg += box_svg(boxes_[i], faces_[i], false);
  }
  return svg + "</g>\n</svg>\n";
}

}  // namespace

std::string graph_svg(const Graph& graph) { return Scene(graph).draw(); }

}  // namespace tessera
