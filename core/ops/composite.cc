// SPDX-License-Identifier: Apache-2.0
#include "core/ops/composite.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

std::string joined_names(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, " "));
}

}  // namespace

Tensor as_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

DType wide_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor widened(const Tensor& x) { return as_dtype(x, wide_dtype(x.dtype())); }

Tensor axis_last(Operand x, std::string_view axis) {
  std::vector<std::string> names = x.tensor.type().names();
  const auto found = std::find(names.begin(), names.end(), axis);
  if (found == names.end() || found + 1 == names.end()) return x.tensor;
  std::rotate(found, found + 1, names.end());
  return transpose(x, joined_names(names));
}

Tensor in_order_of(Operand x, const Type& like) {
  return x.tensor.type().names() == like.names() ? x.tensor
                                                 : transpose(x, joined_names(like.names()));
}

Tensor sum_to_axis(const Tensor& x, std::string_view axis) {
  std::vector<std::string> names = x.type().names();
  names.erase(std::remove(names.begin(), names.end(), axis), names.end());
  return names.empty() ? x : reduce_sum(x, joined_names(names));
}

Type without_axis(Type type, std::string_view axis, DType dtype) {
  type.dtype = dtype;
  type.axes.erase(type.axes.begin() + type.find(axis));
  return type;
}

const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name) {
  const Axis& axis = unsplit_axis_of(context, i, name);
  if (context.inputs[i].axes.back().name != name) {
    refuse(context, fmt::format("{} is not the last axis of {}, which is {}; transpose it", name,
                                context.names[i], context.inputs[i].text()));
  }
  return axis;
}

void check_same_axes(const InferContext& context, size_t i, const std::vector<Axis>& expected) {
  const Type& type = context.inputs[i];
  if (type.axes == expected) return;
  Type wanted = type;
  wanted.axes = expected;
  Type laid_out = type;
  for (size_t axis = 0; axis < std::min(expected.size(), type.axes.size()); ++axis)
    laid_out.axes[axis].split = expected[axis].split;
  const bool only_layout = laid_out.axes == expected;
  refuse(context, fmt::format("{} is {}, expected {}{}", context.names[i], type.text_sized(),
                              wanted.text_sized(),
                              only_layout ? fmt::format("; reshard {} to \"{}\"", context.names[i],
                                                        make_type(type.dtype, expected).layout())
                                          : ""));
}

Type sum_to_axis_type(const InferContext& context, const Type& summed, std::string_view axis,
                      DType dtype) {
  Type type = make_type(dtype, {summed.axis(axis)});
  std::vector<std::string> split;
  for (const Axis& other : summed.axes) {
    if (other.name == axis) continue;
    split = mesh_union(context.mesh, split, other.split);
  }
  if (!split.empty()) type.partial = {PartialKind::kSum, split};
  return type;
}

}  // namespace tessera
