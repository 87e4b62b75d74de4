// SPDX-License-Identifier: Apache-2.0
#include "core/ops/repeat.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

std::vector<Type> infer_repeat(const InferContext& context) {
  const std::string& axis = context.attributes.get(key::kAxis);
  const int64_t count = context.attributes.get(key::kCount);
  const size_t carries = context.attributes.get(key::kCarries),
               slices_end = carries + context.attributes.get(key::kStacked),
               operands = slices_end + context.attributes.get(key::kConstants);
  CHECK(context.bodies.size() == 1 && context.inputs.size() == operands);
  const Graph& body = *context.bodies[0];
  CHECK(body.inputs().size() == 1 + operands && body.outputs().size() >= carries);

  for (size_t i = 0; i < operands; ++i) {
    const Type& inner = body.type(body.inputs()[1 + i].value);
    const bool sliced = i >= carries && i < slices_end;
    const Type expected = sliced ? stacked_type(inner, axis, count) : inner;
    if (context.inputs[i] != expected)
      refuse(context, "{} is {}, the body expects {}", context.names[i],
             context.inputs[i].text_sized(), expected.text_sized());
  }
  std::vector<Type> types;
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    const Type& inner = body.type(body.outputs()[i].value);
    if (i < carries && inner != context.inputs[i])
      refuse(context,
             "{} is {} before an iteration and {} after it; the body must return the "
             "type it takes (place or cast it)",
             context.names[i], context.inputs[i].text_sized(), inner.text_sized());
    types.push_back(i < carries ? inner : stacked_type(inner, axis, count));
  }
  return types;
}

void add_outputs(Graph& body, const std::vector<Tensor>& tensors, std::string_view kind) {
  for (size_t i = 0; i < tensors.size(); ++i)
    body.add_output(fmt::format("{} {}", kind, i), imported(tensors[i]).id());
}

std::vector<Tensor> all_slices(std::vector<Tensor> slices, const std::vector<Stacking>& stackings) {
  for (const Stacking& each : stackings)
    slices.insert(slices.end(), each.values.begin(), each.values.end());
  return slices;
}

// Splits the outputs of a loop's node: some for its caller, others for those that requested stacks.
RepeatResult handed_out(const std::vector<Tensor>& outputs, size_t carries, size_t slices,
                        const std::vector<Stacking>& stackings) {
  auto next = outputs.begin();
  const auto take = [&](size_t count) {
    const auto first = std::exchange(next, next + static_cast<std::ptrdiff_t>(count));
    return std::vector<Tensor>(first, next);
  };
  RepeatResult result{take(carries), {}};
  result.stacked = take(slices);
  for (const Stacking& each : stackings) each.then(take(each.values.size()));
  CHECK(next == outputs.end());
  return result;
}

}  // namespace

const Op kRepeatOp{{.name = "repeat", .op_class = OpClass::kLoop, .infer = infer_repeat}};
const Op kFusedOp{{.name = "fused", .op_class = OpClass::kElementwise, .infer = infer_fused}};
const Op kFusedProductOp{
    {.name = "fused_product", .op_class = OpClass::kContraction, .infer = infer_fused}};
const Op kFusedUpdatesOp{{.name = "fused_updates", .infer = infer_fused}};

RepeatResult repeat(std::string_view axis, int64_t count, const std::vector<Tensor>& carries,
                    const std::vector<Tensor>& stacked,
                    const std::function<RepeatBody(Tensor index, std::vector<Tensor> carries,
                                                   std::vector<Tensor> slices)>& body,
                    LoopOrder order, SourceSite site) {
  if (count < 1) fail("repeat: count is {}, expected at least 1", count);
  const auto graph = std::make_shared<Graph>();
  std::vector<Capture> slice_captures, constant_captures;
  std::vector<Stacking> stackings;
  size_t num_slices_out = 0;
  {
    BodyScope scope(*graph, std::string(axis), count);
    std::vector<Tensor> inner_carries, inner_slices;
    for (size_t i = 0; i < carries.size(); ++i) {
      const std::string name = carries[i].graph()->value(carries[i].id()).name;
      inner_carries.push_back(
          input(fmt::format("carry {}", i), InputKind::kLoop, carries[i].type()).named(name));
    }
    for (const Tensor& outer : stacked) inner_slices.push_back(scope.slice(outer));
    const RepeatBody results = body(scope.index(), inner_carries, inner_slices);
    if (results.carries.size() != carries.size())
      fail("repeat: the body takes {} carries and returns {}", carries.size(),
           results.carries.size());
    add_outputs(*graph, results.carries, "carry");
    num_slices_out = results.slices.size();
    stackings = scope.stackings();
    add_outputs(*graph, all_slices(results.slices, stackings), "slice");
    scope.finish();
    slice_captures = scope.slices();
    constant_captures = scope.constants();
  }
  const Attributes attributes =
      loop_attributes(std::string(axis), count, carries.size(), slice_captures.size(),
                      constant_captures.size(), order == LoopOrder::kReversed);
  std::vector<Tensor> operands = carries;
  for (const Capture& capture : slice_captures) operands.push_back(capture.outer);
  for (const Capture& capture : constant_captures) operands.push_back(capture.outer);
  const std::vector<Tensor> outputs = trace_node(kRepeatOp, operands, attributes, site, {graph});
  return handed_out(outputs, carries.size(), num_slices_out, stackings);
}

Tensor loop_slice(const Tensor& outer) {
  BodyScope* body = innermost_body();
  CHECK(body != nullptr, "loop_slice is called inside the body of a repeat");
  return body->slice(outer);
}

Tensor loop_index() {
  const BodyScope* body = innermost_body();
  return body == nullptr ? Tensor() : body->index();
}

bool is_repeat(const Node& node) { return node.op == &kRepeatOp; }

Loop::Loop(const Node& node) : node_(&node) { CHECK(is_repeat(node)); }

Type stacked_type(const Type& slice, const std::string& axis, int64_t count) {
  Type type = slice;
  type.axes.insert(type.axes.begin(), Axis{.name = axis, .size = count, .split = {}});
  return type;
}

Type slice_type(const Type& stacked) {
  Type type = stacked;
  type.axes.erase(type.axes.begin());
  return type;
}

Attributes loop_attributes(const std::string& axis, int64_t count, size_t carries, size_t slices,
                           size_t constants, bool reversed) {
  return {{key::kAxis, axis},      {key::kCount, count},         {key::kCarries, carries},
          {key::kStacked, slices}, {key::kConstants, constants}, {key::kReversed, reversed}};
}

}  // namespace tessera
