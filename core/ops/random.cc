// SPDX-License-Identifier: Apache-2.0
#include "core/ops/random.h"

#include <charconv>
#include <numbers>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

struct Stream {
  Attributes attributes;
  Tensors scalars;  // step, [loop index], [first example].
};

// Returns the number of random nodes in the trace that use this path.
int64_t uses_of(const StreamPath& stream) {
  int64_t uses = 0;
  for (const Node& node : traced_graph().nodes()) {
    if (node.phase != Phase::kForward || !node.attributes.has(key::kStream)) continue;
    const std::string& path = node.attributes.get(key::kStream);
    const bool same_path = path == stream.path || path.starts_with(stream.path + "#");
    if (same_path && node.attributes.get(key::kLayer) == stream.layer) ++uses;
  }
  return uses;
}

Stream stream_here(const Tensor& step) {
  const Tensor index = loop_index();
  const auto& [first, stride] = trace_state().examples;
  const bool over_layers = index && !(first && first.graph() == index.graph());
  StreamPath path = stream_path(traced_path());
  if (over_layers) path.layer = -1;
  if (const int64_t uses = uses_of(path); uses > 0) path.path += fmt::format("#{}", uses);
  Stream stream{{{key::kSeed, static_cast<uint64_t>(trace_state().seed)},
                 {key::kStream, path.path},
                 {key::kLayer, path.layer},
                 {key::kLoop, over_layers},
                 {key::kPart, first ? stride : 0}},
                {step}};
  if (over_layers) stream.scalars.push_back(index);
  if (first) stream.scalars.push_back(first);
  return stream;
}

void check_scalars(const InferContext& context, size_t begin) {
  for (size_t i = begin; i < context.inputs.size(); ++i) {
    refuse_partial(context, i);
    check_dtype(context, i, DType::kI32);
    check_same_axes(context, i, {});
  }
}

// The elements of an example are contiguous only if the batch axis is first.
void check_batch_leads(const InferContext& context, const Type& type, std::string_view name) {
  if (context.attributes.get(key::kPart) == 0) return;
  if (type.axes.empty() || type.axes.front().name != "batch")
    refuse(context, "{} is {}; under microbatches the batch axis must lead", name, type.text());
}

Types infer_random_uniform(const InferContext& context) {
  check_scalars(context, 0);
  const Type& type = context.attributes.get(key::kType);
  check_batch_leads(context, type, "the result");
  return {type};
}

// Linear in x; replicas and the terms of a partial sum get the same mask.
Types infer_dropout(const InferContext& context) {
  refuse_maximum(context);
  check_floating_operand(context, 0);
  check_scalars(context, 1);
  check_batch_leads(context, context.inputs[0], context.names[0]);
  return {context.inputs[0]};
}

Tensors decompose_dropout(const Node& node, std::span<const Tensor> inputs) {
  const Tensor x = widened(inputs[0]);
  const double keep = node.attributes.get(key::kKeep);
  Attributes attributes = node.attributes;
  attributes.set(key::kType, make_type(DType::kF32, x.type().axes));
  const Tensor uniform =
      trace_op(kRandomUniformOp, {inputs.begin() + 1, inputs.end()}, attributes, node.site);
  const Tensor kept = less(uniform, constant(keep, DType::kF32));
  return {as_dtype(mask(x / keep, kept), inputs[0].dtype())};
}

// Recomputes the mask from the same counters.
Tensors vjp_dropout(const VjpContext& context) {
  Tensors operands(context.inputs.begin(), context.inputs.end());
  operands[0] = context.cotangents[0];
  Tensors cotangents(operands.size());
  cotangents[0] = trace_op(*context.node.op, operands, context.node.attributes, context.node.site);
  return cotangents;
}

}  // namespace

const Op kRandomUniformOp{{.name = "random_uniform",
                           .op_class = OpClass::kGenerator,
                           .infer = infer_random_uniform,
                           .anchor = ShardAnchor::kResult}};
const Op kDropoutOp{{.name = "dropout",
                     .infer = infer_dropout,
                     .vjp = vjp_dropout,
                     .decomposition = decompose_dropout,
                     .anchor = ShardAnchor::kFirstOperand}};

ExampleScope::ExampleScope(const Tensor& first, int64_t stride) : examples_({first, stride}) {
  CHECK(stride >= 1, "examples {} apart", stride);
}

StreamPath stream_path(std::string_view layer_path) {
  for (size_t open = layer_path.find('['); open != std::string_view::npos;
       open = layer_path.find('[', open + 1)) {
    int64_t layer = -1;
    const char* const digits = layer_path.data() + open + 1;
    const char* const end = layer_path.data() + layer_path.size();
    const auto [rest, error] = std::from_chars(digits, end, layer);
    if (error != std::errc() || rest == end || *rest != ']') continue;
    return {fmt::format("{}[{}", layer_path.substr(0, open), std::string_view(rest, end)), layer};
  }
  return {std::string(layer_path), -1};
}

Tensor random_uniform(std::vector<Axis> axes, Operand step) {
  Stream stream = stream_here(step.tensor);
  stream.attributes.set(key::kType, make_type(DType::kF32, std::move(axes)));
  return trace_op(kRandomUniformOp, stream.scalars, stream.attributes, step.site);
}

Tensor random_normal(const std::vector<Axis>& axes, Operand step) {
  if (split_over({DType::kF32, axes, {}}, kStageAxis) && !traced_mesh().layer_pieces().empty())
    fail(
        "the pieces of these layers ({}) are not one equal block a stage, for which random numbers "
        "are drawn; use equal pieces and a schedule of one chunk, or leave out the weight",
        traced_mesh().layer_pieces().text());
  const Tensor radius = sqrt(log(1.0 - random_uniform(axes, step)) * -2.0);
  return radius * cos(random_uniform(axes, step) * (2.0 * std::numbers::pi));
}

Tensor dropout(Operand x, double rate, Operand step) {
  if (!(rate >= 0.0 && rate < 1.0))
    fail("dropout: rate is {}, expected a number from 0 (keep all) to below 1", rate);
  if (rate == 0.0) return x.tensor;
  Stream stream = stream_here(step.tensor);
  // Rounded to f32 as in kernels, so that every backend compares with the same number.
  stream.attributes.set(key::kKeep, static_cast<double>(static_cast<float>(1.0 - rate)));
  Tensors operands = {x.tensor};
  operands.insert(operands.end(), stream.scalars.begin(), stream.scalars.end());
  return trace_op(kDropoutOp, operands, stream.attributes, x.site);
}

}  // namespace tessera
