// SPDX-License-Identifier: Apache-2.0
#include "core/ops/send.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

Types infer_send(const InferContext& context) {
  CHECK(context.inputs.size() == 1, "{} of {} values", context.op, context.inputs.size());
  return {};
}

Types infer_receive(const InferContext& context) {
  CHECK(context.inputs.empty(), "{} of {} values", context.op, context.inputs.size());
  return {context.attributes.get(key::kType)};
}

using Names = std::vector<std::string>;

void add_transfer_axes(const Graph& graph, Names& axes) {
  for (const Node& node : graph.nodes()) {
    if (is_transfer(node))
      for (const std::string& axis : node.attributes.get(key::kMeshAxes))
        if (!contains(axes, axis)) axes.push_back(axis);
    for (const auto& body : node.bodies) add_transfer_axes(*body, axes);
  }
}

constexpr OpDef transfer(std::string_view name, decltype(OpDef::infer) infer) {
  return {.name = name, .op_class = OpClass::kCollective, .infer = infer, .flops = no_flops};
}

Node transfer_node(const Op& op, std::string_view mesh_axis, int64_t peer, std::string_view slot) {
  Node node;
  node.op = &op;
  node.attributes = {
      {key::kMeshAxes, Names{std::string(mesh_axis)}}, {key::kPeer, peer}, {key::kSlot, slot}};
  return node;
}

}  // namespace

const Op kSendOp{transfer("send", infer_send)};
const Op kReceiveOp{transfer("receive", infer_receive)};

Node send_node(ValueId value, std::string_view mesh_axis, int64_t peer, std::string_view slot) {
  Node node = transfer_node(kSendOp, mesh_axis, peer, slot);
  node.inputs = {value};
  return node;
}

Node receive_node(const Type& type, std::string_view mesh_axis, int64_t peer,
                  std::string_view slot) {
  Node node = transfer_node(kReceiveOp, mesh_axis, peer, slot);
  node.attributes.set(key::kType, type);
  return node;
}

bool is_transfer(const Node& node) { return node.op == &kSendOp || node.op == &kReceiveOp; }

std::vector<std::string> transfer_axes(const Graph& graph) {
  Names axes;
  add_transfer_axes(graph, axes);
  return axes;
}

bool communicates_along(const std::vector<std::string>& mesh_axes, const Node& node) {
  if (mesh_axes.empty()) return false;
  if (node.op->op_class == OpClass::kCollective)
    return std::ranges::any_of(node.attributes.get_or(key::kMeshAxes, {}),
                               [&](const std::string& axis) { return contains(mesh_axes, axis); });
  return std::ranges::any_of(node.bodies, [&](const auto& body) {
    return std::ranges::any_of(
        body->nodes(), [&](const Node& inner) { return communicates_along(mesh_axes, inner); });
  });
}

}  // namespace tessera
