// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of the reference interpreter.
#include "core/ops/elementwise.h"

#include <cmath>

#include "core/backend/reference/primitives.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Applies `formula` to aligned elements of all operands.
template <typename Formula>
std::vector<double> pointwise(const ReferenceCall& call, Formula formula) {
  std::vector<std::vector<int64_t>> strides;
  for (const ReferenceArray* operand : call.inputs)
    strides.push_back(strides_along(*operand, call.type.axes));
  std::vector<double> result(static_cast<size_t>(call.type.elements()));
  std::vector<double> x(call.inputs.size());
  for_each_index(call.type.axes, strides,
                 [&](int64_t position, const std::vector<int64_t>& offsets) {
                   for (size_t i = 0; i < x.size(); ++i)
                     x[i] = call.inputs[i]->values[static_cast<size_t>(offsets[i])];
                   result[static_cast<size_t>(position)] = formula(x.data());
                 });
  return result;
}

std::vector<double> run_scale(const ReferenceCall& call) {
  const double factor = call.node.attributes.get<double>("factor");
  return pointwise(call, [factor](const double* x) { return x[0] * factor; });
}

// A cast to a floating dtype is exact, to an integer rounds toward zero, to bool tests for nonzero.
std::vector<double> run_cast(const ReferenceCall& call) {
  const DType dtype = call.type.dtype;
  return pointwise(call, [dtype](const double* x) {
    if (dtype == DType::kBool) return x[0] != 0.0 ? 1.0 : 0.0;
    return is_floating(dtype) ? x[0] : std::trunc(x[0]);
  });
}

const ReferenceOp kElementwiseOps[] = {{&kScaleOp, run_scale}, {&kCastOp, run_cast}};

}  // namespace

std::vector<double> run_elementwise(const ReferenceCall& call) {
  return pointwise(call, call.node.op->element.apply);
}

std::span<const ReferenceOp> reference_elementwise() { return kElementwiseOps; }

}  // namespace tessera
