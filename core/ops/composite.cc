// SPDX-License-Identifier: Apache-2.0
#include "core/ops/composite.h"

#include <algorithm>

#include "core/graph/type.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
Tensor as_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

DType wide_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor widened(const Tensor& x) { return as_dtype(x, wide_dtype(x.dtype())); }

Tensor axis_last(Operand x, std::string_view axis) {
  std::vector<std::string> names = x.tensor.type().names();
  const auto found = std::find(names.begin(), names.end(), axis);
  if (found == names.end() || found + 1 == names.end()) return x.tensor;
  std::rotate(found, found + 1, names.end());
  return transpose(x, joined(names));
}

Tensor in_order_of(Operand x, const Type& like) {
  return x.tensor.type().names() == like.names() ? x.tensor : transpose(x, joined(like.names()));
}

Tensor sum_to_axis(const Tensor& x, std::string_view axis) {
  std::vector<std::string> names = x.type().names();
  names.erase(std::remove(names.begin(), names.end(), axis), names.end());
  return names.empty() ? x : reduce_sum(x, joined(names));
}

Tensor reduce_mean(Operand x, std::string_view axes) {
  const Tensor sum = reduce_sum(x, axes);
  double count = 1.0;
  for (const std::string& name : parse_names(axes)) {
    count *= static_cast<double>(x.tensor.size(name));
  }
  return scale({sum, x.site}, 1.0 / count);
}

}  // namespace tessera
