// SPDX-License-Identifier: Apache-2.0
// Lowering has two parts, so that equal work is recognised on all devices. The first makes a graph
// that describes the positions of shards by mesh axes only (attributes mesh_axes, anchor, before,
// after) and is the same for every device. The second adds the numbers of one device.
#include "core/compile/spmd/lower.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/compile/spmd/ring_attention.h"
#include "core/compile/stages/added_nodes.h"
#include "core/graph/op.h"
#include "core/graph/type.h"
#include "core/ops/layout.h"
#include "core/ops/optimizer.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

// The layouts between which a permute without routes moves shards.
constexpr AttributeName<Type> kLayoutBefore{"before"}, kLayoutAfter{"after"};

using Names = std::vector<std::string>;

// Returns the type of the tensor whose shard's position the op needs; null: none.
const Type* anchor(const Graph& graph, const Node& node) {
  if (node.op == &kAdamUpdateOp && !rounds_stochastically(node)) return nullptr;
  switch (node.op->anchor) {
    case ShardAnchor::kResult:
      return &graph.type(node.outputs[0]);
    case ShardAnchor::kFirstOperand:
      return &graph.type(node.inputs[0]);
    case ShardAnchor::kNone:
      return nullptr;
  }
  return nullptr;
}

bool is_split(const Type& type, const Mesh& mesh) {
  return std::ranges::any_of(type.axes,
                             [&](const Axis& axis) { return mesh.size_along(axis.split) > 1; });
}

// Most ops know the position of a shard by its origin, so it must be one block of the value.
void expect_one_block(const Node& node, const Type& type, const Mesh& mesh) {
  if (rounds_stochastically(node)) return;
  for (const Axis& axis : type.axes)
    if (is_in_pieces(axis, mesh) && !mesh.layer_pieces().is_equal_blocks())
      fail(
          "{}: {} of {}: its layers are in pieces ({}), so a device's part is not one block; "
          "reshard it to have {} whole",
          node.site.text(), node.op->name, type.text(), mesh.layer_pieces().text(), axis.name);
}

// Returns the `changing` mesh axes in the order of the splits and partial of `layout`, then in mesh
// order. It numbers the devices of a permute by their shards.
Names order_of(const Type& layout, const Names& changing, const Mesh& mesh) {
  Names order;
  const auto add = [&](const Names& mesh_axes) {
    for (const std::string& each : mesh_axes)
      if (std::ranges::find(changing, each) != changing.end() &&
          std::ranges::find(order, each) == order.end())
        order.push_back(each);
  };
  for (const Axis& axis : layout.axes) add(axis.split);
  add(layout.partial.mesh_axes);
  Names all;
  for (const MeshAxis& axis : mesh.axes()) all.push_back(axis.name);
  add(all);
  return order;
}

// Returns the attributes of a node of the global graph with local sizes and without splits. An op
// whose result depends on the position of its shard gets the type of the split tensor as `anchor`.
Attributes local_attributes(const Graph& graph, const Node& node, const Mesh& mesh) {
  Attributes result;
  const auto& [axis_name, size_name] = node.op->axis_size;
  for (Attributes::Entry entry : node.attributes.entries()) {
    if (const Type* type = std::get_if<Type>(&entry.value)) {
      entry.value = local_type(*type, mesh);
    } else if (entry.name == key::kSplit.text) {
      entry.value = Names{};
    } else if (entry.name == size_name.text) {
      const std::string& axis = node.attributes.get(axis_name);
      entry.value = local_type(graph.type(node.outputs[0]), mesh).axis(axis).size;
    }
    result.set(std::move(entry));
  }
  const Type* const type = anchor(graph, node);
  if (type != nullptr && is_split(*type, mesh)) {
    expect_one_block(node, *type, mesh);
    result.set(key::kAnchor, *type);
  }
  return result;
}

// Returns the attributes of the node for a step from `layout`, whose part on a device is `local`,
// to a part of type `result`.
Attributes step_attributes(const ReshardStep& step, const Type& layout, const Type& local,
                           const Type& result) {
  Attributes attributes = {{key::kMeshAxes, step.mesh_axes}};
  switch (step.kind) {
    case StepKind::kSlice:
      attributes.set(key::kAxis, step.axis);
      attributes.set(key::kBegin, 0);
      attributes.set(key::kEnd, result.axis(step.axis).size);
      break;
    case StepKind::kPad:
      attributes.set(key::kAxis, step.axis);
      attributes.set(key::kBefore, 0);
      attributes.set(key::kAfter, result.axis(step.axis).size - local.axis(step.axis).size);
      break;
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
      attributes.set(key::kAxis, step.axis);
      break;
    case StepKind::kAllReduce:
      attributes.set(key::kReduction, layout.partial.kind == PartialKind::kMax ? "max" : "sum");
      break;
    case StepKind::kAllToAll:
      attributes.set(key::kSplitAxis, step.to_axis);
      attributes.set(key::kConcatAxis, step.axis);
      break;
    case StepKind::kPermute:
      attributes.set(kLayoutBefore, layout);
      attributes.set(kLayoutAfter, step.result);
      break;
    case StepKind::kMask:
      break;
  }
  return attributes;
}

bool is_identity(const Graph& graph, const Node& node) {
  return node.op->identity && graph.type(node.inputs[0]).dtype == graph.type(node.outputs[0]).dtype;
}

// The steps on layers in pieces that give rows in the order of the model. The others give them as
// they are on the stages, for stage_graph(), which takes each stage's rows from its own shard:
// where stacks are split, and where a loop (over microbatches) gathers them.
enum class OrderedRows { kAll, kGathered, kNone };

// Makes the part of lowering that is the same for all devices.
class Localizer {
 public:
  Localizer(const Graph& graph, const Mesh& mesh, ReshardPlanner& planner, OrderedRows ordered)
      : graph_(graph),
        mesh_(mesh),
        planner_(planner),
        ordered_(ordered),
        rewriter_(graph),
        local_(rewriter_.to()) {}

  Graph run() {
    for (const GraphInput& input : graph_.inputs())
      rewriter_.copy_input(input, local_type(graph_.type(input.value), mesh_));
    for (const NodeId id : graph_.nodes().ids()) {
      const Node& node = graph_.node(id);
      if (is_identity(graph_, node)) {
        replace_with(node.outputs[0], rewriter_.at(node.inputs[0]));
      } else if (node.op->op_class == OpClass::kReshard) {
        lower_reshard(node);
      } else if (is_ring_attention(graph_, node, mesh_)) {
        rewriter_.replace(node, ring_attention(graph_, node, mesh_));
      } else {
        copy(id);
      }
    }
    rewriter_.copy_outputs();
    return std::move(local_);
  }

 private:
  // Replaces a value by an equal local value.
  void replace_with(ValueId value, ValueId local) {
    if (local_.value(local).name.empty()) local_.value(local).name = graph_.value(value).name;
    rewriter_.set(value, local);
  }

  void copy(NodeId id) {
    const Node& original = graph_.node(id);
    Node node = rewriter_.mapped(id);
    node.attributes = local_attributes(graph_, original, mesh_);
    std::vector<SharedType> types;
    for (const ValueId value : original.outputs)
      types.push_back(local_type(graph_.type(value), mesh_));
    const OrderedRows in_loop =
        ordered_ == OrderedRows::kAll ? OrderedRows::kAll : OrderedRows::kNone;
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(Localizer(*body, mesh_, planner_, in_loop).run());
    rewriter_.add(std::move(node), original.outputs, types);
  }

  void lower_reshard(const Node& reshard) {
    const ValueId from = reshard.inputs[0], to = reshard.outputs[0];
    const std::string& given = graph_.value(to).name;
    const std::string name = given.empty() ? graph_.value(from).name : given;
    ValueId value = rewriter_.at(from);
    Type layout = graph_.type(from);
    for (const ReshardStep& step : planner_.plan(layout, graph_.type(to)).steps) {
      value = lower_step(reshard, step, layout, value);
      local_.value(value).name = name;
      layout = step.result;
    }
    replace_with(to, value);
  }

  // Gathering layers in pieces gives the shards of all stages; splits start from those.
  ValueId lower_step(const Node& reshard, const ReshardStep& step, const Type& layout,
                     ValueId value) {
    const LayerPieces& pieces = mesh_.layer_pieces();
    const bool moves = has_pieces(layout) != has_pieces(step.result) && !pieces.is_equal_blocks();
    const bool gathers = moves && has_pieces(layout) && ordered_ != OrderedRows::kNone;
    const bool splits = moves && has_pieces(step.result) && ordered_ == OrderedRows::kAll;
    if (splits) value = in_stage_order(local_, reshard, value, pieces);
    Type result = local_type(step.result, mesh_);
    if (gathers)
      result.axes[static_cast<size_t>(result.find(kLayersAxis))].size =
          pieces.stages() * pieces.rows();
    Node node = reshard;
    node.op = &step_op(step.kind);
    node.inputs = {value};
    node.attributes = step_attributes(step, layout, local_type(layout, mesh_), result);
    value = local_.node(local_.add_node(std::move(node), {result})).outputs[0];
    return gathers ? in_layer_order(local_, reshard, value, pieces) : value;
  }
  bool has_pieces(const Type& type) const {
    return std::ranges::any_of(type.axes,
                               [&](const Axis& axis) { return is_in_pieces(axis, mesh_); });
  }

  const Graph& graph_;
  const Mesh& mesh_;
  ReshardPlanner& planner_;
  OrderedRows ordered_;
  Rewriter rewriter_;
  Graph& local_;
};

// Computes attributes that differ between devices.
class DeviceAttributes {
 public:
  DeviceAttributes(const Mesh& mesh, int64_t device) : mesh_(mesh), device_(device) {}

  // Adds the attributes that depend on the device: group and index, begin and end, before and
  // after, keep, from and to, origin and extent.
  void fill(const Graph& graph, Node& node) {
    Attributes& attributes = node.attributes;
    if (attributes.has(key::kAnchor)) {
      const Type type = attributes.get(key::kAnchor);  // A copy: set() moves attributes.
      std::vector<int64_t> extent;
      for (const Axis& axis : type.axes) extent.push_back(axis.size);
      const std::vector<ShardBlock> blocks = shard_blocks(type, mesh_, device_);
      attributes.set(key::kOrigin, blocks.front().global.origin);
      attributes.set(key::kExtent, std::move(extent));
      if (has_rows(type)) attributes.set(key::kRows, rows_of_blocks(type, blocks));
    }
    if (!attributes.has(key::kMeshAxes)) return;
    const Names mesh_axes = attributes.get(key::kMeshAxes);
    const int64_t index = mesh_.index_along(device_, mesh_axes);
    if (is_transfer(node)) {
      fill_transfer(node, group(mesh_axes), index);
    } else if (is_collective(node)) {
      attributes.set(key::kGroup, group(mesh_axes));
      attributes.set(key::kIndex, index);
      if (attributes.has(key::kStages)) keep_stages(attributes, index);
      if (node.op == &kPermuteOp) fill_permute(attributes);
    } else if (node.op == &kMaskToOwnerOp) {
      attributes.set(key::kIsOwner, index == 0);
    } else if (node.op == &kSliceOp) {
      const int64_t size = graph.type(node.outputs[0]).axis(attributes.get(key::kAxis)).size;
      attributes.set(key::kBegin, index * size);
      attributes.set(key::kEnd, (index + 1) * size);
    } else if (node.op == &kPadOp) {
      const int64_t size = graph.type(node.inputs[0]).axis(attributes.get(key::kAxis)).size;
      attributes.set(key::kBefore, index * size);
      attributes.set(key::kAfter, (mesh_.size_along(mesh_axes) - 1 - index) * size);
    }
  }

 private:
  // Returns whether the shard may be several blocks.
  bool has_rows(const Type& type) const {
    return !type.axes.empty() && is_in_pieces(type.axes[0], mesh_) &&
           !mesh_.layer_pieces().is_equal_blocks();
  }
  // Returns the global number of each row of the shard; padding is numbered 0.
  std::vector<int64_t> rows_of_blocks(const Type& type, const std::vector<ShardBlock>& blocks) {
    std::vector<int64_t> rows(static_cast<size_t>(local_type(type, mesh_).axes[0].size), 0);
    for (const ShardBlock& block : blocks)
      for (int64_t i = 0; i < block.global.shape[0]; ++i)
        rows[static_cast<size_t>(block.local_origin[0] + i)] = block.global.origin[0] + i;
    return rows;
  }
  const std::vector<int64_t>& group(const Names& mesh_axes) {
    const auto [found, added] = groups_.try_emplace(mesh_axes);
    if (added) found->second = mesh_.group(device_, mesh_axes);
    return found->second;
  }

  // Reduces the group of a collective to the stages that take part.
  void keep_stages(Attributes& attributes, int64_t own) {
    const auto& stages = attributes.get(key::kStages);
    const auto& all = attributes.get(key::kGroup);
    std::vector<int64_t> kept;
    for (const int64_t stage : stages) kept.push_back(all[static_cast<size_t>(stage)]);
    attributes.set(key::kIndex, std::ranges::find(stages, own) - stages.begin());
    attributes.set(key::kGroup, std::move(kept));
  }

  // Sets the group to the pair of devices at `own` and at the peer's place among the stages.
  static void fill_transfer(Node& node, const std::vector<int64_t>& stages, int64_t own) {
    Attributes& attributes = node.attributes;
    const int64_t peer = attributes.get(key::kPeer);
    CHECK(peer >= 0 && peer < std::ssize(stages) && peer != own,
          "stage {} of {} exchanges {} with stage {}", own, stages.size(),
          attributes.get(key::kSlot), peer);
    const auto at = [&](int64_t stage) { return stages[static_cast<size_t>(stage)]; };
    const bool sends = node.op == &kSendOp;
    attributes.set(key::kGroup,
                   std::vector<int64_t>{at(std::min(own, peer)), at(std::max(own, peer))});
    attributes.set(key::kIndex, int64_t{own > peer});
    attributes.set(key::kFrom, at(sends ? own : peer));
    attributes.set(key::kTo, at(sends ? peer : own));
  }

  // With `routes` each device of the group sends to the one that they give. Otherwise this device
  // receives its shard from the device whose number before the permute equals this device's number
  // after it.
  void fill_permute(Attributes& attributes) {
    const Names changing = attributes.get(key::kMeshAxes);
    if (attributes.has(key::kRoutes)) {
      const auto& routes = attributes.get(key::kRoutes);
      const int64_t index = mesh_.index_along(device_, changing);
      const auto sender = std::ranges::find(routes, index) - routes.begin();
      attributes.set(key::kFrom, group(changing)[static_cast<size_t>(sender)]);
      attributes.set(key::kTo,
                     group(changing)[static_cast<size_t>(routes[static_cast<size_t>(index)])]);
      return;
    }
    const Names before = order_of(attributes.get(kLayoutBefore), changing, mesh_);
    const Names after = order_of(attributes.get(kLayoutAfter), changing, mesh_);
    const auto at = [&](const Names& order, int64_t place) {
      return group(order)[static_cast<size_t>(place)];
    };
    attributes.set(key::kFrom, at(before, mesh_.index_along(device_, after)));
    attributes.set(key::kTo, at(after, mesh_.index_along(device_, before)));
  }

  const Mesh& mesh_;
  int64_t device_;
  std::map<std::vector<std::string>, std::vector<int64_t>> groups_;
};

// Adds the attributes of one device.
Graph for_device(Graph graph, DeviceAttributes& attributes) {
  for (const NodeId id : graph.nodes().ids()) {
    Node& node = graph.node(id);
    attributes.fill(graph, node);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(for_device(*body, attributes));
  }
  return graph;
}

Graph for_device(Graph graph, const Mesh& mesh, int64_t device) {
  CHECK(device >= 0 && device < mesh.num_devices(), "device {} of {}", device, mesh.num_devices());
  if (mesh.num_devices() == 1) return graph;
  DeviceAttributes attributes(mesh, device);
  return for_device(std::move(graph), attributes);
}

Graph localized(const Graph& graph, const Mesh& mesh, const LinkCosts& costs, OrderedRows ordered) {
  ReshardPlanner planner(mesh, costs);
  return dce(cse(dce(Localizer(graph, mesh, planner, ordered).run())));
}

}  // namespace

Graph lower(const Graph& graph, const Mesh& mesh, int64_t device, const LinkCosts& costs) {
  return for_device(localized(graph, mesh, costs, OrderedRows::kAll), mesh, device);
}

StageGraph lower_stage(const Graph& graph, const Mesh& mesh, const PipelineTable& table,
                       int64_t device, const LinkCosts& costs) {
  if (mesh.stages() > 1) {
    const Graph of_stages = localized(graph, mesh, costs, OrderedRows::kGathered);
    if (can_pipeline(of_stages)) {
      StageGraph lowered = stage_graph(of_stages, mesh, table, mesh.stage_of(device));
      lowered.graph = for_device(std::move(lowered.graph), mesh, device);
      return lowered;
    }
  }
  return {lower(graph, mesh, device, costs), {}};
}

}  // namespace tessera
