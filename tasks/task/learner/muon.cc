// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/muon.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Muon);

namespace {

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

double matrix_size(const Type& type, const std::vector<std::string>& axes) {
  double size = 1.0;
  for (const std::string& name : axes) size *= static_cast<double>(type.axis(name).size);
  return size;
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

WholeMatrices whole_matrices(const Type& type, const MatrixAxes& axes, const Mesh& mesh) {
  WholeMatrices result{type, type};
  std::vector<std::string> moved;
  const auto in_matrix = [&](const Axis& axis) {
    return is_among(axes.rows, axis.name) || is_among(axes.columns, axis.name);
  };
  for (Axis& axis : result.whole.axes) {
    if (!in_matrix(axis)) continue;
    moved.insert(moved.end(), axis.split.begin(), axis.split.end());
    axis.split.clear();
  }
  for (const std::string& mesh_axis : moved) {
    Axis* best = nullptr;
    double least = 1.0;
    for (Axis& axis : result.whole.axes) {
      if (in_matrix(axis)) continue;
      const auto share = static_cast<double>(share_with(type, axis, mesh.size(mesh_axis), mesh));
      const double kept = share / static_cast<double>(share_with(type, axis, 1, mesh));
      if (kept >= least) continue;
      least = kept;
      best = &axis;
    }
    if (best != nullptr) best->split.push_back(mesh_axis);
  }
  for (size_t i = 0; i < type.axes.size(); ++i) {
    Axis& axis = result.whole.axes[i];
    if (is_in_pieces(axis, mesh)) continue;
    axis.size = rounded_up(axis.size, mesh.size_along(axis.split));
    result.padded.axes[i].size = axis.size;
  }
  return result;
}

Muon::Muon(const HParams& p) : BaseOptimizer(p, {{"momentum", MomentOrder::kFirst}}), p_(p) {
  if (p.coefficients.size() != options_.coefficients.size())
    fail("Muon: coefficients are [{}], expected three: those of X, X³ and X⁵",
         fmt::join(p.coefficients, ", "));
  if (p.dtype != DType::kBF16 && p.dtype != DType::kF32)
    fail("Muon: dtype is {}, expected bf16 or f32", dtype_name(p.dtype));
  options_ = {.steps = p.steps, .epsilon = p.epsilon};
  std::ranges::copy(p.coefficients, options_.coefficients.begin());
  if (!p.other_tpl.has()) return;
  other_ = p.other_tpl.instantiate();
  if (has_schedule(*other_))
    fail(
        "Muon: other_tpl has a schedule of its own, but the one of Muon applies to both; leave "
        "other_tpl.schedule_tpl a constant of 1");
  if (other_->averages())
    fail(
        "Muon: other_tpl averages weights, which Muon's own do not have; give these weights to it "
        "by optimizer_rules");
}

// The matrices that the layer declares, with `block_axes` among what numbers them.
MatrixAxes Muon::matrices_of(std::string_view path, const FanAxes& declared) const {
  MatrixAxes axes{declared.out, declared.in};
  for (auto* names : {&axes.rows, &axes.columns}) {
    std::erase_if(*names, [&](const auto& name) { return is_among(p_.block_axes, name); });
    if (names->empty())
      fail(
          "Muon: block_axes [{}] leave no axis for the {} of the matrices of '{}', which are "
          "[{}] by [{}]; leave one out",
          fmt::join(p_.block_axes, ", "), names == &axes.rows ? "outputs" : "inputs", path,
          fmt::join(declared.out, " "), fmt::join(declared.in, " "));
  }
  return axes;
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

// A change of spectral norm √(out/in) relative to the base's. n blocks, as heads, have √n that of
// one.
double Muon::width_factor(const Parameter& parameter) const {
  const WidthRatios widths = width_ratios(parameter);
  double blocks = 1.0;
  for (const auto& [axis, ratio] : parameter.widths)
    if (is_among(p_.block_axes, axis)) blocks *= ratio;
  const MatrixAxes axes = matrices_of(parameter.path, *matrix_axes(parameter));
  return std::sqrt(widths.out / widths.in / blocks) *
         scale_of(in_base_model(parameter).type, axes) / scale_of(parameter.type, axes);
}

const BaseOptimizer& Muon::for_parameter(const Parameter& parameter) const {
  const auto declared = matrix_axes(parameter);
  const auto& all = parameter.type.axes;
  const auto excluded = std::ranges::find_if(
      all, [&](const Axis& axis) { return is_among(p_.excluded_axes, axis.name); });
  if (declared && excluded == all.end()) {
    matrices_of(parameter.path, *declared);
    return *this;
  }
  if (other_) return other_->for_parameter(parameter);
  const std::string why =
      declared ? fmt::format("excluded_axes has its axis {}", excluded->name)
               : "it has no axes of inputs and outputs, as a bias, a scale or a vector";
  fail(
      "Muon: '{}' is {}, and no matrix for Muon ({}); set other_tpl to the optimizer of such "
      "weights, for example AdamW",
      parameter.path, parameter.type.text_sized(), why);
}

Updated Muon::update(const UpdateInputs& inputs) const {
  if (inputs.matrix.in.empty() || inputs.matrix.out.empty())
    fail("Muon: '{}' is {}, which has no matrices", inputs.path,
         inputs.parameter.type().text_sized());
  const double kept = p_.momentum;
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor momentum = averaged(kept, old_state(inputs, 0), gradient);
  const Tensor direction = p_.nesterov ? averaged(kept, momentum, gradient) : momentum;

  const MatrixAxes axes = matrices_of(inputs.path, inputs.matrix);
  const WholeMatrices layout = whole_matrices(direction.type(), axes, traced_mesh());
  Tensor x = as_dtype(direction, p_.dtype);
  for (const Axis& axis : layout.padded.axes)
    if (x.size(axis.name) < axis.size) x = pad(x, axis.name, 0, axis.size - x.size(axis.name));
  const Type sharded = x.type();
  Type whole = layout.whole;
  whole.dtype = x.dtype();
  x = reshard(newton_schulz(reshard(x, whole), axes, options_), sharded);
  for (const Axis& axis : direction.type().axes)
    if (axis.size < x.size(axis.name)) x = slice(x, axis.name, 0, axis.size);
  const Tensor change = as_dtype(x, DType::kF32) * scale_of(inputs.parameter.type(), axes);
  return {decayed_step(inputs, change), stored(inputs, {momentum})};
}

}  // namespace tessera
