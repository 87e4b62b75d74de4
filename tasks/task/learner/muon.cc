// SPDX-License-Identifier: Apache-2.0
// Muon: momentum, made nearly orthogonal for each matrix of a weight. What has no matrices, and
// tables and heads, have another optimizer.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Muon);

Muon::Muon(const HParams& p) : MatrixOptimizer(p, {{"momentum", MomentOrder::kFirst}}), p_(p) {
  if (p.coefficients.size() != options_.coefficients.size())
    fail("Muon: coefficients are [{}], expected three: those of X, X³ and X⁵",
         fmt::join(p.coefficients, ", "));
  if (p.dtype != DType::kBF16 && p.dtype != DType::kF32)
    fail("Muon: dtype is {}, expected bf16 or f32", dtype_name(p.dtype));
  options_ = {.steps = p.steps, .epsilon = p.epsilon};
  std::ranges::copy(p.coefficients, options_.coefficients.begin());
}

double Muon::scale_of(const Type& parameter, const MatrixAxes& axes) const {
  const double out = matrix_size(parameter, axes.rows), in = matrix_size(parameter, axes.columns);
  switch (p_.scale) {
    case MuonScale::kMatchRmsAdamw:
      return 0.2 * std::sqrt(std::max(out, in));
    case MuonScale::kOriginal:
      return std::sqrt(std::max(1.0, out / in));
  }
  CHECK(false, "unknown scale");
  return 1.0;
}

Updated Muon::update(const UpdateInputs& inputs) const {
  const MatrixAxes axes = matrices_of(inputs);
  const double kept = p_.momentum;
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor momentum = averaged(kept, old_state(inputs, 0), gradient);
  const Tensor direction = p_.nesterov ? averaged(kept, momentum, gradient) : momentum;

  const Type whole = whole_matrices(direction.type(), axes, traced_mesh());
  const Tensor x = padded_to(as_dtype(direction, p_.dtype), whole);
  const Tensor orthogonal = sliced_to(newton_schulz(x, axes, options_), direction.type());
  const Tensor change = in_f32(orthogonal) * scale_of(inputs.parameter.type(), axes);
  return {decayed_step(inputs, change), stored(inputs, {momentum})};
}

}  // namespace tessera
