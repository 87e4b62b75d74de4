// SPDX-License-Identifier: Apache-2.0
// Shampoo: gradients of matrices, multiplied from both sides by inverse roots of what they sum to.
// What has no matrices, and tables and heads, have another optimizer.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/inverse_root.h"
#include "core/ops/layout.h"
#include "core/ops/optimizer.h"
#include "core/ops/reduce.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Shampoo);

namespace {

constexpr std::string_view kStatisticsAxis = "shampoo";  // The second of statistics.

// x / max(1, its RMS), for each matrix.
Tensor capped(const Tensor& x, const Matrices& matrices) {
  const std::string &row = matrices.row(), &column = matrices.column();
  const Tensor squares = reduce_sum(square(x), row + " " + column);
  const Tensor rms = sqrt(squares / static_cast<double>(x.size(row) * x.size(column)));
  return x / maximum(rms, constant(1.0, DType::kF32));
}

}  // namespace

// The statistics of a weight's rows or columns, or the roots of these: one for each matrix.
struct Shampoo::Side {
  std::string name, axis, other;  // The axis of Matrices, and the one that products sum over.
  Type whole;                     // Where they are computed.
  Type stored;                    // Devices that hold parts of the weight share their rows.
};

std::vector<Shampoo::Side> Shampoo::sides_of(const Type& weight, const Type& matrices) const {
  const Mesh& mesh = traced_mesh();
  const size_t numbers = matrices.axes.size() - 2;
  std::vector<Side> sides;
  for (const size_t i : {numbers, numbers + 1}) {
    Axis rows = matrices.axes[i];
    const Axis columns{std::string(kStatisticsAxis), rows.size, {}};
    if (rows.size > p_.max_precondition_dims) continue;
    Type whole = in_dtype(matrices, DType::kF32);
    whole.axes.resize(numbers);
    Type stored = whole;
    for (Axis& each : stored.axes)
      if (weight.axis(each.name).size < each.size) each = weight.axis(each.name);
    whole.axes.insert(whole.axes.end(), {rows, columns});
    for (const std::string& each : split_of(mesh, weight))
      if (!split_over(stored, each) &&
          rows.size % (mesh.size_along(rows.split) * mesh.size(each)) == 0)
        rows.split.push_back(each);
    stored.axes.insert(stored.axes.end(), {rows, columns});
    sides.push_back({i == numbers ? "left" : "right", rows.name,
                     matrices.axes[2 * numbers + 1 - i].name, whole, stored});
  }
  return sides;
}

Shampoo::Shampoo(const HParams& p)
    : MatrixOptimizer(p,
                      p.momentum > 0.0 ? std::vector<Moment>{{"momentum"}} : std::vector<Moment>{}),
      p_(p) {
  if (const int64_t other = MatrixOptimizer::interval();
      other > 1 && p.root_interval > 1 && other != p.root_interval)
    fail(
        "Shampoo: root_interval is {}, but other_tpl renews its state every {} steps; expected one "
        "interval",
        p.root_interval, other);
}

int64_t Shampoo::interval() const {
  return std::max(p_.root_interval, MatrixOptimizer::interval());
}

const BaseOptimizer& Shampoo::for_parameter(const Parameter& parameter) const {
  const BaseOptimizer& optimizer = MatrixOptimizer::for_parameter(parameter);
  if (&optimizer != this) return optimizer;
  const auto [rows, columns] = matrices_of(parameter.path, *matrix_axes(parameter));
  const double smaller =
      std::min(matrix_size(parameter.type, rows), matrix_size(parameter.type, columns));
  if (smaller <= static_cast<double>(p_.max_precondition_dims)) return *this;
  return other_for(parameter, "both sides are larger than max_precondition_dims");
}

double Shampoo::scale_of(const Type& parameter, const MatrixAxes& axes) const {
  if (p_.scale == ShampooScale::kOriginal) return 1.0;
  const auto most = static_cast<double>(p_.max_precondition_dims);
  const double rows = matrix_size(parameter, axes.rows);
  const double columns = matrix_size(parameter, axes.columns);
  return std::max(rows, columns) > most ? std::sqrt(std::max(rows, columns))
                                        : std::sqrt(std::sqrt(rows * columns));
}

std::vector<Slot> Shampoo::slots(const StoredWeight& weight) const {
  std::vector<Slot> slots = BaseOptimizer::slots(weight);
  const MatrixAxes axes = matrices_of(weight.path, weight.matrix);
  const Matrices matrices(whole_matrices(weight.type, axes, traced_mesh()), axes);
  for (const Side& side : sides_of(weight.type, matrices.type())) {
    slots.push_back({side.name, side.stored});
    if (p_.root_interval > 1) slots.push_back({side.name + "_root", side.stored});
  }
  return slots;
}

Tensor Shampoo::root_of(const Side& side, int64_t root, const Tensor& gradient,
                        const UpdateInputs& inputs, std::vector<Tensor>& next) const {
  const Tensor summand =
      sliced_to(einsum(gradient, rename(gradient, side.axis, kStatisticsAxis), over(side.other)),
                side.stored);
  const auto store = [&](const Tensor& value) {
    next.push_back(stored_state(inputs, next.size(), value, Rounding::kNearest, {}));
  };
  const double decay = p_.statistics_decay;
  Tensor statistics = old_state(inputs, next.size());
  statistics = decay < 1.0 ? averaged(decay, statistics, summand) : statistics + summand;
  store(statistics);
  const bool is_stored = p_.root_interval > 1;
  if (is_stored && !inputs.renews) {
    next.push_back(inputs.slots.at(next.size()));
    return padded_to(next.back(), side.whole);
  }
  if (decay < 1.0) statistics = statistics / bias_correction(decay, inputs.count);
  const Tensor result = inverse_root(padded_to(statistics, side.whole), side.axis, kStatisticsAxis,
                                     {.root = root, .damping = p_.damping, .epsilon = p_.epsilon});
  if (is_stored) store(sliced_to(result, side.stored));
  return result;
}

Updated Shampoo::update(const UpdateInputs& inputs) const {
  const MatrixAxes axes = matrices_of(inputs);
  const Tensor gradient = scaled_gradient(inputs);
  const Type& type = gradient.type();
  const Type whole = whole_matrices(type, axes, traced_mesh());
  const Matrices matrices(whole, axes);
  const Tensor g = matrices.of(padded_to(gradient, whole));
  Tensor x = g;
  std::vector<Tensor> next;
  if (p_.momentum > 0.0) {
    const Tensor momentum = averaged(p_.momentum, old_state(inputs, 0), gradient);
    next = stored(inputs, {momentum});
    x = matrices.of(padded_to(momentum, whole));
  }
  const std::vector<Side> sides = sides_of(type, matrices.type());
  for (const Side& side : sides) {
    const Tensor root = root_of(side, 2 * std::ssize(sides), g, inputs, next);
    const Tensor renamed = rename(x, side.axis, kStatisticsAxis);
    x = side.axis == matrices.row() ? einsum(root, renamed, over(kStatisticsAxis))
                                    : einsum(renamed, root, over(kStatisticsAxis));
  }
  if (p_.scale == ShampooScale::kMatchAdamw) x = capped(x * scale_of(type, axes), matrices);
  return {decayed_step(inputs, sliced_to(matrices.stored(x), type)), next};
}

}  // namespace tessera
