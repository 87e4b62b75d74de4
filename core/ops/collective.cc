// SPDX-License-Identifier: Apache-2.0
#include "core/ops/collective.h"

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

using Devices = std::vector<int64_t>;

int64_t group_size(const Attributes& attributes) {
  return static_cast<int64_t>(attributes.get<Devices>("group").size());
}

Axis& axis_in(Type& type, const InferContext& context, std::string_view attribute) {
  const int64_t position = type.find(context.attributes.get<std::string>(attribute));
  CHECK(position >= 0, "{}: {} has no such axis", context.op, type.text());
  return type.axes[static_cast<size_t>(position)];
}

void shrink(Axis& axis, int64_t devices) {
  CHECK(axis.size % devices == 0, "{} of {} over {} devices", axis.name, axis.size, devices);
  axis.size /= devices;
}

std::vector<Type> infer_all_gather(const InferContext& context) {
  Type type = context.inputs[0];
  axis_in(type, context, "axis").size *= group_size(context.attributes);
  return {type};
}

std::vector<Type> infer_reduce_scatter(const InferContext& context) {
  Type type = context.inputs[0];
  shrink(axis_in(type, context, "axis"), group_size(context.attributes));
  return {type};
}

std::vector<Type> infer_all_to_all(const InferContext& context) {
  Type type = context.inputs[0];
  shrink(axis_in(type, context, "split_axis"), group_size(context.attributes));
  axis_in(type, context, "concat_axis").size *= group_size(context.attributes);
  return {type};
}

std::vector<Type> infer_same(const InferContext& context) { return {context.inputs[0]}; }

constexpr OpDef collective(std::string_view name, std::vector<Type> (*infer)(const InferContext&)) {
  return {.name = name, .op_class = OpClass::kCollective, .infer = infer, .flops = no_flops};
}

}  // namespace

const Op kAllGatherOp{collective("all_gather", infer_all_gather)};
const Op kReduceScatterOp{collective("reduce_scatter", infer_reduce_scatter)};
const Op kAllReduceOp{collective("all_reduce", infer_same)};
const Op kAllToAllOp{collective("all_to_all", infer_all_to_all)};
const Op kPermuteOp{collective("permute", infer_same)};
const Op kMaskToOwnerOp{{.name = "mask_to_owner",
                         .op_class = OpClass::kDataMovement,
                         .infer = infer_same,
                         .flops = no_flops}};

bool is_collective(const Node& node) { return node.op->op_class == OpClass::kCollective; }

int64_t collective_bytes(const Graph& graph, const Node& node) {
  const int64_t in = graph.type(node.inputs[0]).bytes();
  const int64_t out = graph.type(node.outputs[0]).bytes();
  if (node.op == &kPermuteOp) {
    const int64_t self = node.attributes.get<Devices>(
        "group")[static_cast<size_t>(node.attributes.get<int64_t>("index"))];
    return node.attributes.get<int64_t>("to") == self ? 0 : in;
  }
  const int64_t devices = group_size(node.attributes);
  if (node.op == &kAllGatherOp) return out / devices * (devices - 1);
  // Parts of an uneven division differ by one element; the total is the same.
  const int64_t times = node.op == &kAllReduceOp ? 2 : 1;
  return times * in * (devices - 1) / devices;
}

}  // namespace tessera
