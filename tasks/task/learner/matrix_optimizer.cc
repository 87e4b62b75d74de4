// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/matrix_optimizer.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Steps of a run at which a schedule that is not constant would show.
bool has_schedule(const BaseOptimizer& optimizer) {
  constexpr int64_t kSteps = 100;
  for (const int64_t step : {int64_t{0}, int64_t{1}, kSteps / 2, kSteps - 1})
    if (optimizer.learning_rate(step, kSteps) != optimizer.base_learning_rate()) return true;
  return false;
}

// The largest share of `axis` that a device would have, with `more` devices along it; of an axis
// that the type splits only whole shares. Equal to the present share: not possible, or no gain.
int64_t share_with(const Type& type, const Axis& axis, int64_t more, const Mesh& mesh) {
  const int64_t devices = mesh.size_along(axis.split), share = ceil_div(axis.size, devices);
  if (is_in_pieces(axis, mesh)) return share;
  const bool may_pad = type.axis(axis.name).split.empty();
  if (!may_pad && share % more != 0) return share;
  return ceil_div(axis.size, devices * more);
}

}  // namespace

double matrix_size(const Type& type, const std::vector<std::string>& axes) {
  double size = 1.0;
  for (const std::string& name : axes) size *= static_cast<double>(type.axis(name).size);
  return size;
}

Type whole_matrices(const Type& type, const MatrixAxes& axes, const Mesh& mesh) {
  Type whole = type;
  std::vector<std::string> moved;
  const auto in_matrix = [&](const Axis& axis) {
    return is_among(axes.rows, axis.name) || is_among(axes.columns, axis.name);
  };
  for (Axis& axis : whole.axes) {
    if (!in_matrix(axis)) continue;
    moved.insert(moved.end(), axis.split.begin(), axis.split.end());
    axis.split.clear();
  }
  for (const std::string& mesh_axis : moved) {
    Axis* best = nullptr;
    double least = 1.0;
    for (Axis& axis : whole.axes) {
      if (in_matrix(axis)) continue;
      const auto share = static_cast<double>(share_with(type, axis, mesh.size(mesh_axis), mesh));
      const double kept = share / static_cast<double>(share_with(type, axis, 1, mesh));
      if (kept >= least) continue;
      least = kept;
      best = &axis;
    }
    if (best != nullptr) best->split.push_back(mesh_axis);
  }
  for (Axis& axis : whole.axes)
    if (!is_in_pieces(axis, mesh)) axis.size = rounded_up(axis.size, mesh.size_along(axis.split));
  return whole;
}

Tensor padded_to(Tensor x, Type type) {
  for (const Axis& axis : type.axes)
    if (x.size(axis.name) < axis.size) x = pad(x, axis.name, 0, axis.size - x.size(axis.name));
  return reshard(x, in_dtype(std::move(type), x.dtype()));
}

Tensor sliced_to(Tensor x, const Type& type) {
  Type padded = in_dtype(type, x.dtype());
  for (Axis& axis : padded.axes) axis.size = x.size(axis.name);
  x = reshard(x, padded);
  for (const Axis& axis : type.axes)
    if (axis.size < x.size(axis.name)) x = slice(x, axis.name, 0, axis.size);
  return x;
}

void MatrixOptimizer::check_other() const {
  if (!other_) return;
  if (has_schedule(*other_))
    fail(
        "{0}: other_tpl has a schedule of its own, but the one of {0} applies to both; leave "
        "other_tpl.schedule_tpl a constant of 1",
        name_);
  if (other_->averages())
    fail(
        "{0}: other_tpl averages weights, which {0}'s own do not have; give these weights to it "
        "by optimizer_rules",
        name_);
}

MatrixAxes MatrixOptimizer::matrices_of(std::string_view path, const FanAxes& declared) const {
  MatrixAxes axes{declared.out, declared.in};
  for (auto* names : {&axes.rows, &axes.columns}) {
    std::erase_if(*names, [&](const auto& name) { return is_among(block_axes_, name); });
    if (names->empty())
      fail(
          "{}: block_axes [{}] leave no axis for the {} of the matrices of '{}', which are "
          "[{}] by [{}]; leave one out",
          name_, fmt::join(block_axes_, ", "), names == &axes.rows ? "outputs" : "inputs", path,
          fmt::join(declared.out, " "), fmt::join(declared.in, " "));
  }
  return axes;
}

MatrixAxes MatrixOptimizer::matrices_of(const UpdateInputs& inputs) const {
  if (inputs.matrix.in.empty() || inputs.matrix.out.empty())
    fail("{}: '{}' is {}, which has no matrices", name_, inputs.path,
         inputs.parameter.type().text_sized());
  return matrices_of(inputs.path, inputs.matrix);
}

// n blocks, as heads, have √n the spectral norm of one.
double MatrixOptimizer::width_factor(const Parameter& parameter) const {
  const WidthRatios widths = width_ratios(parameter);
  double blocks = 1.0;
  for (const auto& [axis, ratio] : parameter.widths)
    if (is_among(block_axes_, axis)) blocks *= ratio;
  const MatrixAxes axes = matrices_of(parameter.path, *matrix_axes(parameter));
  return std::sqrt(widths.out / widths.in / blocks) *
         scale_of(in_base_model(parameter).type, axes) / scale_of(parameter.type, axes);
}

const BaseOptimizer& MatrixOptimizer::for_parameter(const Parameter& parameter) const {
  const auto declared = matrix_axes(parameter);
  if (!declared)
    return other_for(parameter,
                     "it has no axes of inputs and outputs, as a bias, a scale or a vector");
  for (const Axis& axis : parameter.type.axes)
    if (is_among(excluded_axes_, axis.name))
      return other_for(parameter, fmt::format("excluded_axes has its axis {}", axis.name));
  matrices_of(parameter.path, *declared);
  return *this;
}

const BaseOptimizer& MatrixOptimizer::other_for(const Parameter& parameter,
                                                std::string_view why) const {
  if (other_) return other_->for_parameter(parameter);
  fail(
      "{0}: '{1}' is {2}, and no matrix for {0} ({3}); set other_tpl to the optimizer of such "
      "weights, for example AdamW",
      name_, parameter.path, parameter.type.text_sized(), why);
}

}  // namespace tessera
