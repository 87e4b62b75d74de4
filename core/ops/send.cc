// SPDX-License-Identifier: Apache-2.0
#include "core/ops/send.h"

#include <string>
#include <vector>

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
  return {context.attributes.get<Type>("type")};
}

constexpr OpDef transfer(std::string_view name, decltype(OpDef::infer) infer) {
  return {.name = name, .op_class = OpClass::kCollective, .infer = infer, .flops = no_flops};
}

Node transfer_node(const Op& op, std::string_view mesh_axis, int64_t peer, std::string_view slot) {
  Node node;
  node.op = &op;
  node.attributes = {{"mesh_axes", std::vector<std::string>{std::string(mesh_axis)}},
                     {"peer", peer},
                     {"slot", std::string(slot)}};
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
  node.attributes.set("type", type);
  return node;
}

bool is_transfer(const Node& node) { return node.op == &kSendOp || node.op == &kReceiveOp; }

}  // namespace tessera
