// SPDX-License-Identifier: Apache-2.0
#include "core/ops/layout.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

constexpr AttributeName<std::string> kFrom{"from"}, kTo{"to"}, kOuter{"outer"}, kInner{"inner"};
constexpr AttributeName<int64_t> kOuterSize{"outer_size"}, kInnerSize{"inner_size"};

using Names = std::vector<std::string>;

// Returns the operand's type and sets `position` to that of axis `name`; Error if it lacks the
// axis.
Type with_axis(const InferContext& context, std::string_view name, size_t& position) {
  refuse_maximum(context);
  axis_of(context, 0, name);
  position = static_cast<size_t>(context.inputs[0].find(name));
  return context.inputs[0];
}

Types infer_rename(const InferContext& context) {
  size_t position = 0;
  Type type = with_axis(context, context.attributes.get(kFrom), position);
  refuse_axis(context, 0, context.attributes.get(kTo));
  type.axes[position].name = context.attributes.get(kTo);
  return {type};
}

Types infer_transpose(const InferContext& context) {
  refuse_maximum(context);
  const Type& x = context.inputs[0];
  const Names& order = context.attributes.get(key::kOrder);
  if (!std::ranges::is_permutation(order, x.names()))
    refuse(context, "order [{}] must name each axis of {}: [{}]", joined(order), context.names[0],
           joined(x.names()));
  Type type{x.dtype, {}, x.partial};
  for (const std::string& name : order) type.axes.push_back(x.axis(name));
  return {type};
}

Types infer_split(const InferContext& context) {
  size_t position = 0;
  Type type = with_axis(context, context.attributes.get(key::kAxis), position);
  const Axis whole = type.axes[position];
  const Axis outer{context.attributes.get(kOuter), context.attributes.get(kOuterSize), whole.split};
  const Axis inner{context.attributes.get(kInner), context.attributes.get(kInnerSize), {}};
  for (const Axis& part : {outer, inner})
    if (part.name != whole.name) refuse_axis(context, 0, part.name);
  if (outer.size * inner.size != whole.size)
    refuse(context, "{}={} of {} is not {}={} times {}={}", whole.name, whole.size,
           context.names[0], outer.name, outer.size, inner.name, inner.size);
  type.axes[position] = outer;
  type.axes.insert(type.axes.begin() + static_cast<int64_t>(position) + 1, inner);
  return {type};
}

Types infer_merge(const InferContext& context) {
  size_t position = 0;
  Type type = with_axis(context, context.attributes.get(kOuter), position);
  const Axis& outer = axis_of(context, 0, context.attributes.get(kOuter));
  const Axis& inner = unsplit_axis_of(context, 0, context.attributes.get(kInner));
  const std::string& merged = context.attributes.get(key::kAxis);
  if (type.find(inner.name) != static_cast<int64_t>(position) + 1)
    refuse(context,
           "{} and {} of {} are not neighbours in this order: it is {}; "
           "transpose it",
           outer.name, inner.name, context.names[0], type.text());
  if (merged != outer.name && merged != inner.name) refuse_axis(context, 0, merged);
  type.axes[position] = {merged, outer.size * inner.size, outer.split};
  type.axes.erase(type.axes.begin() + static_cast<int64_t>(position) + 1);
  return {type};
}

Types infer_slice(const InferContext& context) {
  size_t position = 0;
  Type type = with_axis(context, context.attributes.get(key::kAxis), position);
  const Axis& axis = unsplit_axis_of(context, 0, context.attributes.get(key::kAxis));
  const int64_t begin = context.attributes.get(key::kBegin),
                end = context.attributes.get(key::kEnd);
  if (begin < 0 || end > axis.size || begin >= end)
    refuse(context, "[{}, {}) is not a part of {}={} of {}", begin, end, axis.name, axis.size,
           context.names[0]);
  type.axes[position].size = end - begin;
  return {type};
}

Types infer_pad(const InferContext& context) {
  size_t position = 0;
  Type type = with_axis(context, context.attributes.get(key::kAxis), position);
  unsplit_axis_of(context, 0, context.attributes.get(key::kAxis));
  const int64_t before = context.attributes.get(key::kBefore);
  const int64_t after = context.attributes.get(key::kAfter);
  if (before < 0 || after < 0)
    refuse(context, "{} before and {} after; neither may be negative", before, after);
  type.axes[position].size += before + after;
  return {type};
}

Types infer_concat(const InferContext& context) {
  const std::string& name = context.attributes.get(key::kAxis);
  size_t position = 0;
  Type type = with_axis(context, name, position);
  check_same_dtype(context);
  type.axes[position].size = 0;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    partial_of_sum(context, {0, i});
    const Axis& axis = unsplit_axis_of(context, i, name);
    Type expected = context.inputs[0];
    expected.axes[position].size = axis.size;
    if (context.inputs[i] != expected)
      refuse(context, "{} is {}, {} is {}; they may differ in the size of {} only",
             context.names[0], context.inputs[0].text_sized(), context.names[i],
             context.inputs[i].text_sized(), name);
    type.axes[position].size += axis.size;
  }
  return {type};
}

Types infer_shift(const InferContext& context) {
  refuse_maximum(context);
  unsplit_axis_of(context, 0, context.attributes.get(key::kAxis));
  // Each rank would add a fill other than zero.
  if (context.attributes.get(key::kFill) != 0.0) refuse_partial(context, 0);
  return {context.inputs[0]};
}

Tensors rename_vjp(const VjpContext& c) {
  return {rename(c.cotangents[0], c.node.attributes.get(kTo), c.node.attributes.get(kFrom))};
}

Tensors transpose_vjp(const VjpContext& c) {
  return {transpose(c.cotangents[0], joined(c.inputs[0].type().names()))};
}

Tensors split_vjp(const VjpContext& c) {
  return {merge_axes(c.cotangents[0], c.node.attributes.get(kOuter), c.node.attributes.get(kInner),
                     c.node.attributes.get(key::kAxis))};
}

Tensors merge_vjp(const VjpContext& c) {
  const Type& x = c.inputs[0].type();
  return {split_axis(c.cotangents[0], c.node.attributes.get(key::kAxis),
                     x.axis(c.node.attributes.get(kOuter)), x.axis(c.node.attributes.get(kInner)))};
}

Tensors slice_vjp(const VjpContext& c) {
  const std::string& axis = c.node.attributes.get(key::kAxis);
  return {pad(c.cotangents[0], axis, c.node.attributes.get(key::kBegin),
              c.inputs[0].size(axis) - c.node.attributes.get(key::kEnd))};
}

Tensors pad_vjp(const VjpContext& c) {
  const std::string& axis = c.node.attributes.get(key::kAxis);
  const int64_t before = c.node.attributes.get(key::kBefore);
  return {slice(c.cotangents[0], axis, before, before + c.inputs[0].size(axis))};
}

Tensors concat_vjp(const VjpContext& c) {
  const std::string& axis = c.node.attributes.get(key::kAxis);
  Tensors parts;
  int64_t begin = 0;
  for (const Tensor& part : c.inputs) {
    parts.push_back(slice(c.cotangents[0], axis, begin, begin + part.size(axis)));
    begin += part.size(axis);
  }
  return parts;
}

// Shifts left by one; the last element has no gradient.
Tensors shift_vjp(const VjpContext& c) {
  const std::string& axis = c.node.attributes.get(key::kAxis);
  const int64_t size = c.inputs[0].size(axis);
  if (size == 1) return {Tensor()};
  return {pad(slice(c.cotangents[0], axis, 1, size), axis, 0, 1)};
}

constexpr OpDef movement(std::string_view name, decltype(OpDef::infer) infer,
                         decltype(OpDef::vjp) vjp) {
  return {.name = name,
          .op_class = OpClass::kDataMovement,
          .infer = infer,
          .vjp = vjp,
          .flops = no_flops};
}

// Makes an op that selects or permutes elements of its operand; a view moves no data.
constexpr OpDef selection(std::string_view name, decltype(OpDef::infer) infer,
                          decltype(OpDef::vjp) vjp) {
  OpDef op = movement(name, infer, vjp);
  op.linear_view = true;
  return op;
}
constexpr OpDef view(std::string_view name, decltype(OpDef::infer) infer,
                     decltype(OpDef::vjp) vjp) {
  OpDef op = selection(name, infer, vjp);
  op.op_class = OpClass::kView;
  return op;
}

}  // namespace

const Op kRenameOp{view("rename", infer_rename, rename_vjp)};
const Op kSplitAxisOp{[] {
  OpDef op = view("split_axis", infer_split, split_vjp);
  op.axis_size = {kOuter, kOuterSize};
  return op;
}()};
const Op kMergeAxesOp{view("merge_axes", infer_merge, merge_vjp)};
const Op kTransposeOp{selection("transpose", infer_transpose, transpose_vjp)};
const Op kSliceOp{[] {
  OpDef op = selection("slice", infer_slice, slice_vjp);
  op.bytes = selected_bytes;
  return op;
}()};
const Op kPadOp{[] {
  OpDef op = movement("pad", infer_pad, pad_vjp);
  op.linear = true;
  return op;
}()};
const Op kConcatOp{movement("concat", infer_concat, concat_vjp)};
const Op kShiftRightOp{movement("shift_right", infer_shift, shift_vjp)};
const Op kCopyOp{movement("copy", infer_same, nullptr)};

Tensor rename(Operand x, std::string_view from, std::string_view to) {
  return trace_unary(kRenameOp, x, {{kFrom, from}, {kTo, to}});
}

Tensor transpose(Operand x, std::string_view order) {
  return trace_unary(kTransposeOp, x, {{key::kOrder, names_at(x, order)}});
}

Tensor axis_last(Operand x, std::string_view axis) {
  Names names = x.tensor.type().names();
  const auto found = std::ranges::find(names, axis);
  if (found == names.end() || found + 1 == names.end()) return x.tensor;
  std::rotate(found, found + 1, names.end());
  return transpose(x, joined(names));
}

Tensor in_order_of(Operand x, const Type& like) {
  return x.tensor.type().names() == like.names() ? x.tensor : transpose(x, joined(like.names()));
}

Tensor split_axis(Operand x, std::string_view axis, Axis outer, Axis inner) {
  return trace_unary(kSplitAxisOp, x,
                     {{key::kAxis, axis},
                      {kOuter, outer.name},
                      {kOuterSize, outer.size},
                      {kInner, inner.name},
                      {kInnerSize, inner.size}});
}

Tensor merge_axes(Operand x, std::string_view outer, std::string_view inner,
                  std::string_view axis) {
  return trace_unary(kMergeAxesOp, x, {{kOuter, outer}, {kInner, inner}, {key::kAxis, axis}});
}

Tensor slice(Operand x, std::string_view axis, int64_t begin, int64_t end) {
  return trace_unary(kSliceOp, x, {{key::kAxis, axis}, {key::kBegin, begin}, {key::kEnd, end}});
}

Tensor pad(Operand x, std::string_view axis, int64_t before, int64_t after) {
  return trace_unary(kPadOp, x, {{key::kAxis, axis}, {key::kBefore, before}, {key::kAfter, after}});
}

Tensor concat(const std::vector<Tensor>& parts, std::string_view axis, SourceSite site) {
  CHECK(!parts.empty(), "concat of nothing");
  return trace_op(kConcatOp, parts, {{key::kAxis, axis}}, site);
}

// A slice of size 1 is merged into the axis before it. A first axis first moves after the next
// one.
std::vector<Tensor> unbind(Operand x, std::string_view axis) {
  Names names = x.tensor.type().names();
  if (names.size() < 2) {
    const ErrorPrefix where(x.site.text());
    fail("unbind: {} has fewer than two axes; slice it", x.tensor.type().text());
  }
  const auto position = static_cast<size_t>(std::ranges::find(names, axis) - names.begin());
  Tensor from = x.tensor;
  if (position == 0) {
    std::swap(names[0], names[1]);
    from = transpose(x, joined(names));
  }
  const std::string& before = names[position <= 1 ? 0 : position - 1];
  const int64_t size = from.has(axis) ? from.size(axis) : 1;  // slice raises the Error.
  std::vector<Tensor> slices;
  for (int64_t i = 0; i < size; ++i) {
    const Tensor one = slice({from, x.site}, axis, i, i + 1);
    slices.push_back(merge_axes({one, x.site}, before, axis, before));
  }
  return slices;
}

Tensor shift_right(Operand x, std::string_view axis, double fill) {
  return trace_unary(kShiftRightOp, x, {{key::kAxis, axis}, {key::kFill, fill}});
}

}  // namespace tessera
