// SPDX-License-Identifier: Apache-2.0
#include "core/graph/scene.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/graph/op.h"

namespace tessera {
namespace {

Look look_of(const OpDef& op) {
  switch (op.op_class) {
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
      return Look::kReshard;
    case OpClass::kCollective:
    case OpClass::kLoop:
    case OpClass::kOther:
      return Look::kComposite;
  }
  return Look::kComposite;
}

// bf16["batch/data=8"] without its brackets and quotes.
std::string short_type(const Type& type) {
  std::string text = type.text_sized();
  std::erase(text, '"');
  std::erase(text, ']');
  std::replace(text.begin(), text.end(), '[', ' ');
  return text;
}

// Adds one graph's nodes below a box.
class GraphScene {
 public:
  GraphScene(Scene& scene, const Graph& graph, int root, const std::string& path_above)
      : scene_(scene), graph_(graph), root_(root), path_above_(path_above) {
    for (const Node& node : graph.nodes()) {
      if (node.phase != graph.nodes().front().phase) phased_ = true;
    }
  }

  void add() {
    for (const Node& node : graph_.nodes()) {
      if (!inlined(node)) add_node(node);
    }
    for (const GraphOutput& output : graph_.outputs()) add_output(output);
  }

 private:
  int add_box(int parent, Face face) {
    Box box{.parent = parent};
    double characters = static_cast<double>(face.title.size()) * kTitleSize;
    for (const std::string& line : face.lines) {
      characters = std::max(characters, static_cast<double>(line.size()) * kTypeSize);
    }
    box.width = characters * kGlyph + 16.0;
    box.height = kLineHeight * static_cast<double>(face.lines.size() + 1) + 8.0;
    scene_.boxes.push_back(box);
    scene_.faces.push_back(std::move(face));
    return static_cast<int>(scene_.boxes.size()) - 1;
  }

  int add_layer(int parent, const std::string& title) {
    const int box = add_box(parent, {.title = title});
    scene_.boxes[static_cast<size_t>(box)].header = kLineHeight;
    return box;
  }

  // Constants are said in the title of what reads them.
  static bool inlined(const Node& node) {
    return node.op->op_class == OpClass::kGenerator && node.attributes.has("value");
  }

  int phase_box(Phase phase) {
    if (!phased_) return root_;
    const auto [found, added] = phases_.try_emplace(phase, 0);
    if (added) found->second = add_layer(root_, std::string(phase_name(phase)));
    return found->second;
  }

  // Whether `box` is `outer` or within it.
  bool within(int box, int outer) const {
    while (box > outer) box = scene_.boxes[static_cast<size_t>(box)].parent;
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
      if (added || !continues(found->second, node)) found->second = add_layer(layer, name);
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
    Face face{.look = look_of(*node.op), .title = title, .tip = tip(node)};
    for (const ValueId output : node.outputs) {
      const std::string name = local_name(graph_.value(output).name, node.path);
      face.lines.push_back((name.empty() ? "" : name + " ") + short_type(graph_.type(output)));
    }
    const bool opens = node.op->op_class == OpClass::kLoop;
    if (!node.bodies.empty() && !opens) face.lines.insert(face.lines.begin(), body_ops(node));
    if (opens) face.title += fmt::format(" x {}", node.attributes.get<int64_t>("count"));
    const int box = add_box(layer, std::move(face));
    if (opens) {
      scene_.boxes[static_cast<size_t>(box)].header =
          kLineHeight * static_cast<double>(node.outputs.size() + 1);
      for (const auto& body : node.bodies) GraphScene(scene_, *body, box, node.path).add();
    }
    node_boxes_[graph_.value(node.outputs.front()).producer] = box;
    for (const ValueId output : node.outputs) boxes_[{node.phase, output}] = box;
    for (size_t i = 0; i < sources.size(); ++i) add_wire(sources[i], box, read[i]);
  }

  void add_wire(int from, int to, ValueId value) {
    scene_.wires.push_back({from, to, {}});
    scene_.pending.push_back(static_cast<bool>(graph_.type(value).partial));
  }

  // The box a value comes from: its producer's, or a label in the reader's layer for inputs and for
  // what another phase made.
  int source_box(ValueId id, Phase phase, int layer, const std::string& path) {
    const auto made = boxes_.find({phase, id});
    if (made != boxes_.end()) return made->second;
    const auto [found, added] = labels_.try_emplace({layer, id}, 0);
    if (!added) return found->second;
    Face face{.look = Look::kElsewhere,
              .title = local_name(graph_.describe(id), path),
              .lines = {short_type(graph_.type(id))},
              .tip = graph_.describe(id)};
    for (const GraphInput& input : graph_.inputs()) {
      if (input.value != id) continue;
      face.look = input.kind == InputKind::kParameter ? Look::kParameter : Look::kInput;
      face.title = local_name(input.name, path);
    }
    return found->second = add_box(layer, std::move(face));
  }

  // Below what it fetches, in the same layer.
  void add_output(const GraphOutput& output) {
    const NodeId producer = graph_.value(output.value).producer;
    const Phase phase = producer == kNone ? Phase::kForward : graph_.node(producer).phase;
    const int source = source_box(output.value, phase, phase_box(phase), "");
    const int layer = scene_.boxes[static_cast<size_t>(source)].parent;
    const std::string title = (output.is_update ? "update " : "output ") + output.name;
    add_wire(source, add_box(layer, {.look = Look::kOutput, .title = title}), output.value);
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

}  // namespace

Scene make_scene(const Graph& graph) {
  Scene scene;
  scene.boxes.emplace_back();
  scene.faces.emplace_back();
  GraphScene(scene, graph, 0, "").add();
  arrange(scene.boxes, scene.wires);
  return scene;
}

}  // namespace tessera
