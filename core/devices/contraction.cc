// SPDX-License-Identifier: Apache-2.0
#include "core/devices/contraction.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/region.h"

namespace tessera {
namespace {

using Group = std::vector<Axis>;  // The axes of one role: batch, m, n or k.

int64_t elements_of(const Group& group) { return element_count(sizes_of(group)); }

// Returns the strides of `type` along a group of its axes.
Strides strides_of(const Type& type, const Group& group) {
  Strides strides;
  const Strides all = strides_in(type, type.axes);
  for (const Axis& axis : group) strides.push_back(all[static_cast<size_t>(type.find(axis.name))]);
  return strides;
}

// Returns the stride of a group as a single dimension; nullopt if its axes do not merge into one.
std::optional<int64_t> single_stride(const Type& type, const Group& group) {
  const IterationSpace space = collapse(sizes_of(group), {strides_of(type, group)});
  if (space.sizes.empty()) return 1;
  if (space.sizes.size() > 1) return std::nullopt;
  return space.operands[0][0];
}

// Returns the layout of rows × columns, if they form a matrix in memory.
std::optional<MatrixLayout> matrix_layout(const Type& type, const Group& rows,
                                          const Group& columns) {
  const auto row = single_stride(type, rows), column = single_stride(type, columns);
  if (!row || !column) return std::nullopt;
  const int64_t row_count = elements_of(rows), column_count = elements_of(columns);
  // A dimension of one element has any stride.
  if (column_count == 1)
    return MatrixLayout{std::max<int64_t>(row_count == 1 ? 1 : *row, 1), false};
  if (*column == 1 && (row_count == 1 || *row >= column_count))
    return MatrixLayout{row_count == 1 ? column_count : *row, false};
  if ((row_count == 1 || *row == 1) && *column >= row_count) return MatrixLayout{*column, true};
  return std::nullopt;
}

// An operand in place, or packed in the order batch, rows, columns.
struct Placed {
  MatrixLayout layout;
  Strides batch;
  std::optional<Packing> packing;
};

Placed place(const Type& type, const Group& batch, const Group& rows, const Group& columns,
             bool is_result) {
  const std::optional<MatrixLayout> layout = matrix_layout(type, rows, columns);
  if (layout && !(is_result && layout->transposed))
    return {*layout, strides_of(type, batch), std::nullopt};
  Group order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  const Type packed = make_type(type.dtype, order);
  const Strides here = strides_of(type, order), there = strides_of(packed, order);
  std::vector<Strides> strides = {here, there};
  if (is_result) std::swap(strides[0], strides[1]);
  return {{elements_of(columns), false},
          strides_of(packed, batch),
          Packing{collapse(sizes_of(order), std::move(strides)), type.elements()}};
}

}  // namespace

Contraction make_contraction(const Graph& graph, const Node& node) {
  const Type &x = graph.type(node.inputs[0]), &y = graph.type(node.inputs[1]);
  const Type& result = graph.type(node.outputs[0]);
  Group batch, m, n, k;
  for (const Axis& axis : result.axes) {
    const bool in_x = x.has(axis.name), in_y = y.has(axis.name);
    (in_x && in_y ? batch : in_x ? m : n).push_back(axis);
  }
  for (const Axis& axis : x.axes)
    if (!result.has(axis.name)) k.push_back(axis);
  Contraction contraction;
  // The last axis of the result with more than one element must be a column.
  for (auto axis = result.axes.rbegin(); axis != result.axes.rend(); ++axis) {
    if (axis->size == 1) continue;
    const auto is_it = [&](const Axis& other) { return other.name == axis->name; };
    contraction.swapped = std::ranges::any_of(m, is_it);
    break;
  }
  if (contraction.swapped) std::swap(m, n);
  const Type &a = contraction.swapped ? y : x, &b = contraction.swapped ? x : y;

  const Placed left = place(a, batch, m, k, false), right = place(b, batch, k, n, false);
  const Placed out = place(result, batch, m, n, true);
  contraction.shape = {.m = elements_of(m),
                       .n = elements_of(n),
                       .k = elements_of(k),
                       .a = left.layout,
                       .b = right.layout,
                       .c_leading = out.layout.leading,
                       .input = x.dtype,
                       .output = result.dtype};
  contraction.batch = collapse(sizes_of(batch), {left.batch, right.batch, out.batch});
  contraction.pack_a = left.packing;
  contraction.pack_b = right.packing;
  contraction.pack_c = out.packing;
  return contraction;
}

}  // namespace tessera
