// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of the reference interpreter, as formulas on doubles.
#include <cmath>

#include "core/backend/reference/primitives.h"
#include "core/base/error.h"

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

template <double (*kFormula)(const double*)>
std::vector<double> run(const ReferenceCall& call) {
  return pointwise(call, kFormula);
}

std::vector<double> run_scale(const ReferenceCall& call) {
  const double factor = call.node.attributes.get<double>("factor");
  return pointwise(call, [factor](const double* x) { return x[0] * factor; });
}

// Exact to a floating dtype; towards zero to an integer; != 0 to bool.
std::vector<double> run_cast(const ReferenceCall& call) {
  const DType dtype = call.type.dtype;
  return pointwise(call, [dtype](const double* x) {
    if (dtype == DType::kBool) return x[0] != 0.0 ? 1.0 : 0.0;
    return is_floating(dtype) ? x[0] : std::trunc(x[0]);
  });
}

using X = const double*;
double same(X x) { return x[0]; }
double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const ReferenceOp kElementwiseOps[] = {
    {"neg", run<[](X x) { return -x[0]; }>},
    {"scale", run_scale},
    {"cast", run_cast},
    {"stop_gradient", run<same>},
    {"save_for_backward", run<same>},
    {"exp", run<[](X x) { return std::exp(x[0]); }>},
    {"log", run<[](X x) { return std::log(x[0]); }>},
    {"sqrt", run<[](X x) { return std::sqrt(x[0]); }>},
    {"rsqrt", run<[](X x) { return 1.0 / std::sqrt(x[0]); }>},
    {"square", run<[](X x) { return x[0] * x[0]; }>},
    {"abs", run<[](X x) { return std::abs(x[0]); }>},
    {"sign", run<[](X x) { return static_cast<double>((x[0] > 0) - (x[0] < 0)); }>},
    {"sin", run<[](X x) { return std::sin(x[0]); }>},
    {"cos", run<[](X x) { return std::cos(x[0]); }>},
    {"erf", run<[](X x) { return std::erf(x[0]); }>},
    {"tanh", run<[](X x) { return std::tanh(x[0]); }>},
    {"sigmoid", run<[](X x) { return sigmoid_of(x[0]); }>},
    {"add", run<[](X x) { return x[0] + x[1]; }>},
    {"sub", run<[](X x) { return x[0] - x[1]; }>},
    {"mul", run<[](X x) { return x[0] * x[1]; }>},
    {"div", run<[](X x) { return x[0] / x[1]; }>},
    {"pow", run<[](X x) { return std::pow(x[0], x[1]); }>},
    {"maximum", run<[](X x) { return std::fmax(x[0], x[1]); }>},
    {"minimum", run<[](X x) { return std::fmin(x[0], x[1]); }>},
    {"equal", run<[](X x) { return x[0] == x[1] ? 1.0 : 0.0; }>},
    {"less", run<[](X x) { return x[0] < x[1] ? 1.0 : 0.0; }>},
    {"less_equal", run<[](X x) { return x[0] <= x[1] ? 1.0 : 0.0; }>},
    {"logical_and", run<[](X x) { return x[0] != 0 && x[1] != 0 ? 1.0 : 0.0; }>},
    {"logical_or", run<[](X x) { return x[0] != 0 || x[1] != 0 ? 1.0 : 0.0; }>},
    {"logical_not", run<[](X x) { return x[0] == 0 ? 1.0 : 0.0; }>},
    {"is_finite", run<[](X x) { return std::isfinite(x[0]) ? 1.0 : 0.0; }>},
    {"where", run<[](X x) { return x[0] != 0 ? x[1] : x[2]; }>},
    {"mask", run<[](X x) { return x[1] != 0 ? x[0] : 0.0; }>},
};

}  // namespace

std::span<const ReferenceOp> reference_elementwise() { return kElementwiseOps; }

}  // namespace tessera
