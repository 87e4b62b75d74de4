// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/gradient_transformations.h"

#include <optional>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/random.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

REGISTER_TEMPLATE(BaseGradientTransformation, ClipGradientNorm);
REGISTER_TEMPLATE(BaseGradientTransformation, ClipGradientValue);
REGISTER_TEMPLATE(BaseGradientTransformation, CentralizeGradient);
REGISTER_TEMPLATE(BaseGradientTransformation, GradientNoise);

namespace {

using Weight = GradientStep::Weight;

Tensor norm_of_gradients(const GradientStep& step) {
  std::vector<Tensor> gradients;
  for (const Weight& weight : step.weights) gradients.push_back(weight.gradient);
  return norm_of_all(gradients, NormPasses::kOne);
}

}  // namespace

void checked_transform(const BaseGradientTransformation& transformation, GradientStep& step) {
  const std::vector<Weight> before = step.weights;
  calling(transformation, "transform()", [&] { transformation.transform(step); });
  const auto check = [&](const std::string& what, const Tensor& next, const Type& expected) {
    if (!next.valid() || next.type() != expected)
      fail_in(transformation, "transform()", "left {} {}, expected {}", what,
              next.valid() ? next.type().text_sized() : "without a value", expected.text_sized());
  };
  if (step.weights.size() != before.size())
    fail_in(transformation, "transform()", "left {} gradients of {}", step.weights.size(),
            before.size());
  for (size_t i = 0; i < before.size(); ++i)
    check("the gradient of " + before[i].parameter->path, step.weights[i].gradient,
          before[i].gradient.type());
  check("`apply`", step.apply, make_type(DType::kBool, {}));
}

void ClipGradientNorm::transform(GradientStep& step) const {
  const Tensor whole = p_.each_tensor ? Tensor() : norm_of_gradients(step);
  for (Weight& weight : step.weights) {
    const Tensor norm = p_.each_tensor ? sqrt(sum_of_squares(weight.gradient)) : whole;
    weight.gradient =
        as_dtype(in_f32(weight.gradient) * clip_scale(p_.max_norm, norm), weight.gradient.dtype());
  }
}

void ClipGradientValue::transform(GradientStep& step) const {
  for (Weight& weight : step.weights) {
    const Tensor limit = constant(p_.limit, weight.gradient.dtype());
    weight.gradient = minimum(maximum(weight.gradient, -limit), limit);
  }
}

void CentralizeGradient::transform(GradientStep& step) const {
  for (Weight& weight : step.weights) {
    const std::optional<FanAxes> matrix = matrix_axes(*weight.parameter);
    if (!matrix) continue;
    const std::vector<std::string>& axes = matrix->in;
    const Tensor gradient = in_f32(weight.gradient);
    // Whole axes, so that the order of the sums is that of one device.
    Type whole = gradient.type(), mean_type = gradient.type();
    for (const std::string& name : axes) {
      if (trace_state().is_mesh_invariant) whole = with_whole_axis(whole, name, traced_mesh());
      std::erase_if(mean_type.axes, [&](const Axis& axis) { return axis.name == name; });
    }
    const Tensor mean =
        reduce_mean(reshard(gradient, whole), fmt::format("{}", fmt::join(axes, " ")));
    weight.gradient = as_dtype(gradient - reshard(mean, mean_type), weight.gradient.dtype());
  }
}

void GradientNoise::transform(GradientStep& step) const {
  const ErrorPrefix where("GradientNoise");
  const Tensor deviation = p_.scale * pow(step.count + 1.0, constant(-0.5 * p_.decay, DType::kF32));
  for (Weight& weight : step.weights) {
    const PathScope path(weight.parameter->path);
    const Type& type = weight.gradient.type();
    const Tensor noise = random_normal(type.axes, cast(step.count, DType::kI32)) * deviation;
    weight.gradient = weight.gradient + as_dtype(noise, type.dtype);
  }
}

}  // namespace tessera
