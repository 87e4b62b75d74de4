// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matrices.h"

#include <algorithm>
#include <utility>

#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"

namespace tessera {

Matrices::Matrices(const Type& type, MatrixAxes axes) : type_(type), axes_(std::move(axes)) {
  auto& [rows, columns] = axes_;
  const std::vector<std::string> names = type.names();
  const auto first = std::ranges::find_if(
      names, [&](const auto& name) { return contains(rows, name) || contains(columns, name); });
  if (contains(columns, *first)) std::swap(rows, columns);
  for (const std::string& name : names)
    if (!contains(rows, name) && !contains(columns, name)) order_.push_back(name);
  order_.insert(order_.end(), rows.begin(), rows.end());
  order_.insert(order_.end(), columns.begin(), columns.end());
}

Type Matrices::type() const {
  Type type = make_type(type_.dtype, {});
  for (const std::string& name : order_) {
    const Axis& axis = type_.axis(name);
    const auto is_inner = [&](const std::vector<std::string>& names) {
      return contains(names, name) && name != names.front();
    };
    if (is_inner(axes_.rows) || is_inner(axes_.columns))
      type.axes.back().size *= axis.size;
    else
      type.axes.push_back(axis);
  }
  return type;
}

Tensor Matrices::of(const Tensor& x) const {
  Tensor y = order_ == type_.names() ? x : transpose(x, joined(order_));
  for (const auto* axes : {&axes_.rows, &axes_.columns})
    for (size_t i = 1; i < axes->size(); ++i) y = merge_axes(y, (*axes)[0], (*axes)[i], (*axes)[0]);
  return y;
}

Tensor Matrices::stored(Tensor y) const {
  for (const auto* axes : {&axes_.rows, &axes_.columns})
    for (size_t i = axes->size(); i-- > 1;) {
      const Axis inner = type_.axis((*axes)[i]), all = y.type().axis((*axes)[0]);
      y = split_axis(y, all.name, {all.name, all.size / inner.size, {}}, inner);
    }
  return in_order_of(y, type_);
}

}  // namespace tessera
