// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/learner.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {
namespace {

constexpr std::string_view kCount = "learner/count";
constexpr std::string_view kSkipped = "learner/skipped";
constexpr std::string_view kSkippedInARow = "learner/skipped_in_a_row";
constexpr std::string_view kWindowSteps = "learner/window_steps";

std::string slot_name(const Slot& slot, std::string_view path) {
  return fmt::format("learner/{}/{}", slot.name, path);
}

Tensor scalar_state(std::string_view name) {
  return input(std::string(name), InputKind::kState, make_type(DType::kF32, {}));
}

Tensor f32(double value) { return constant(value, DType::kF32); }

// `steps`: how many of the window there are. The value enters it if `enters`.
Tensor deviations_above(const std::string& name, const Tensor& value, const Tensor& steps,
                        const Tensor& enters, int64_t size) {
  const Axis axis{"step_window", size, {}};
  const Tensor past = input(name, InputKind::kState, make_type(DType::kF32, {axis}));
  const Tensor at = iota(axis);
  const Tensor next = where(equal(at, constant(0.0, DType::kI32)), broadcast(value, {axis}),
                            shift_right(past, axis.name, 0.0));
  traced_graph().add_update(name, where(enters, next, past).id());
  // Values are divided by the largest: squares of norms may exceed f32.
  const Tensor largest = maximum(reduce_max(abs(past), axis.name), f32(1e-30));
  const Tensor scaled = past / largest, count = maximum(steps, f32(1.0));
  const Tensor mean = reduce_sum(scaled) / count;
  const Tensor squares = mask(square(scaled - mean), less(cast(at, DType::kF32), steps));
  const Tensor deviation = maximum(sqrt(reduce_sum(squares) / count) * largest, f32(1e-6));
  const auto enough = static_cast<double>(std::max<int64_t>(2, size / 2));
  return where(less_equal(f32(enough), steps), (value - mean * largest) / deviation, f32(0.0));
}

StepDeviations step_deviations(const Tensor& loss, const Tensor& norm, int64_t size) {
  const Tensor steps = scalar_state(kWindowSteps);
  const Tensor enters = logical_and(is_finite(loss), is_finite(norm));
  const Tensor next = minimum(steps + 1.0, f32(static_cast<double>(size)));
  traced_graph().add_update(std::string(kWindowSteps), where(enters, next, steps).id());
  return {deviations_above("learner/window_losses", loss, steps, enters, size),
          deviations_above("learner/window_grad_norms", norm, steps, enters, size)};
}

bool is_vector(const Parameter& parameter) {
  return parameter.type.rank() - (parameter.stack > 0 ? 1 : 0) <= 1;
}

// `weight` one step closer to equal sums of the metric along its last axis.
Tensor balanced(const Tensor& weight, const BalancedBy& by,
                const std::map<std::string, Metric>& metrics) {
  const auto metric = metrics.find(by.metric);
  CHECK(metric != metrics.end(), "no layer adds the metric {}", by.metric);
  const Tensor& sums = metric->second.sum;
  const Axis& axis = sums.type().axes.back();
  const Tensor mean = reduce_sum(sums, axis.name) / static_cast<double>(axis.size);
  return weight + reshard(sign(mean - sums) * by.rate, weight.type());
}

}  // namespace

std::string ema_name(std::string_view parameter_path) {
  return fmt::format("learner/ema/{}", parameter_path);
}

Learner::Learner(const HParams& p)
    : p_(p),
      optimizers_(p.optimizer_tpl, p.optimizer_rules, p.learning_rate_rules),
      no_decay_(p.weight_decay_exclusion, "weight_decay_exclusion"),
      frozen_(p.bprop_variable_exclusion, "bprop_variable_exclusion"),
      trained_(p.bprop_variable_inclusion, "bprop_variable_inclusion") {
  for (const auto& each : p.gradient_transformations_tpl)
    transformations_.push_back(each.instantiate());
  if (p.clip_gradient_norm_to_value > 0.0 && p.clip_gradient_single_norm_to_value > 0.0)
    fail(
        "learner: clip_gradient_norm_to_value={} and clip_gradient_single_norm_to_value={} "
        "exclude each other; set one of them to 0",
        p.clip_gradient_norm_to_value, p.clip_gradient_single_norm_to_value);
  if (p.ema_decay > 0.0 && optimizers_.averages())
    fail("learner: ema_decay is {}, but an optimizer averages the weights itself; set it to 0",
         p.ema_decay);
}

void Learner::check(const ParameterTable& table) const {
  no_decay_.check(table);
  frozen_.check(table);
  trained_.check(table);
  std::vector<std::string> trained;
  for (const Parameter& each : table.parameters())
    if (trains(each)) trained.push_back(each.path);
  optimizers_.check(table, trained);
  for (const Parameter& each : table.parameters())
    if (trains(each)) width_factor(each);
  if (trained.empty())
    fail(
        "learner: every parameter is frozen, so there is nothing to train; see "
        "bprop_variable_exclusion and bprop_variable_inclusion");
}

bool Learner::trains(const Parameter& parameter) const {
  if (parameter.balanced_by || parameter.is_frozen) return false;
  return !frozen_.match(parameter.path) && (trained_.empty() || trained_.match(parameter.path));
}

double Learner::weight_decay(const Parameter& parameter, const BaseOptimizer& optimizer) const {
  if (p_.skip_lp_1d_vectors && is_vector(parameter)) return 0.0;
  return no_decay_.match(parameter.path) ? 0.0 : optimizer.weight_decay();
}

const BaseOptimizer& Learner::optimizer_of(const Parameter& declared) const {
  return *optimizers()[optimizers_.index_of(declared.path)].optimizer;
}

double Learner::width_factor(const Parameter& declared) const {
  const BaseOptimizer& optimizer = optimizer_of(declared).for_parameter(declared);
  return calling(optimizer, "width_factor()", [&] { return optimizer.width_factor(declared); });
}

std::string Learner::widths_text(const ParameterTable& table) const {
  std::string text;
  for (const Parameter& each : table.parameters()) {
    if (each.widths.empty()) continue;
    const auto [in, out, initial] = width_ratios(each);
    const double rate = trains(each) ? width_factor(each) : 1.0;
    text += fmt::format("{:<8.4g}{:<8.4g}{:<9.4g}{:<9.4g}{:<9.4g}{} {}\n", in, out, initial, rate,
                        1.0 / rate, each.path, each.type.text_sized());
  }
  if (text.empty()) return "";
  return "Sizes relative to the base model (muP), and factors that follow\n"
         "in      out     initial  rate     decay    weight\n" +
         text;
}

Updated Learner::optimize(const Parameter& declared, const Tensor& value,
                          const Gradients& gradients, const Tensor& average,
                          const Scalars& scalars) const {
  const BaseOptimizer& whole = optimizer_of(declared);
  const BaseOptimizer& optimizer = whole.for_parameter(declared);
  const double width = width_factor(declared);
  const double multiplier = optimizers_.multiplier(declared.path) * width;
  const Tensor rate = learning_rate_of(optimizer, whole,
                                       scalars.learning_rates[optimizers_.index_of(declared.path)]);
  UpdateInputs inputs{.path = declared.path,
                      .parameter = value,
                      .gradient = gradients.gradient,
                      .gradient_scale = scalars.scale,
                      .learning_rate = multiplier == 1.0 ? rate : rate * multiplier,
                      .count = scalars.count,
                      .apply = scalars.apply,
                      // Its product with the learning rate is as in the base model.
                      .weight_decay = weight_decay(declared, optimizer) / width,
                      .matrix = matrix_axes(declared).value_or(FanAxes{}),
                      .average = average,
                      .renews = scalars.renews};
  if (gradients.drawn && optimizer.reads_drawn_gradient()) {
    inputs.drawn_gradient = gradients.drawn;
    inputs.drawn_labels = scalars.drawn_labels;
  }
  const std::vector<Slot> slots =
      checked_slots(optimizer, {declared.path, value.type(), inputs.matrix});
  for (const Slot& slot : slots)
    inputs.slots.push_back(input(slot_name(slot, declared.path), InputKind::kState, slot.type));
  Updated updated = checked_update(optimizer, inputs);
  Graph& graph = traced_graph();
  graph.add_update(declared.path, updated.parameter.id());
  for (size_t s = 0; s < slots.size(); ++s)
    graph.add_update(slot_name(slots[s], declared.path), updated.slots[s].id());
  return updated;
}

Tensor Learner::clipped(const Tensor& gradient) const {
  const double limit = p_.clip_gradient_single_norm_to_value;
  return limit > 0.0 ? gradient * clip_scale(limit, sqrt(sum_of_squares(gradient))) : gradient;
}

void Learner::transform(const ParameterTable& table, const std::vector<Tensor>& parameters,
                        std::vector<Tensor>& gradients, Scalars& scalars) const {
  GradientStep step{.count = scalars.count, .apply = scalars.apply};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& declared = table.parameters()[i];
    if (!trains(declared)) continue;
    const PathScope path(declared.path);
    Tensor gradient = clipped(gradients[step.weights.size()]);
    if (p_.clip_gradient_norm_to_value > 0.0)
      gradient = cast(in_f32(gradient) * scalars.scale, gradient.dtype());
    step.weights.push_back({&declared, parameters[i], gradient});
  }
  scalars.scale = f32(1.0);
  for (const auto& each : transformations_) checked_transform(*each, step);
  scalars.apply = step.apply;
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = step.weights[i].gradient;
}

void Learner::update(const Parameter& declared, Tensor value, const Gradients& gradients,
                     const std::map<std::string, Metric>& metrics, const Scalars& scalars) const {
  Graph& graph = traced_graph();
  const auto average_input = [&] {
    return input(ema_name(declared.path), InputKind::kState, value.type());
  };
  Tensor average, next_average;
  if (gradients.gradient.valid()) {
    if (optimizer_of(declared).averages()) average = average_input();
    const Updated updated = optimize(declared, value, gradients, average, scalars);
    value = updated.parameter;
    next_average = updated.average;
  }
  if (declared.balanced_by && !declared.is_frozen) {
    value = where(scalars.apply, balanced(value, *declared.balanced_by, metrics), value);
    graph.add_update(declared.path, value.id());
  }
  if (!averages()) return;
  if (!average.valid()) {
    average = average_input();
    // Without a decay a weight whose optimizer does not average has itself as its average.
    next_average = value;
    if (p_.ema_decay > 0.0)
      next_average =
          where(scalars.apply, average + (value - average) * (1.0 - p_.ema_decay), average);
  }
  graph.add_update(ema_name(declared.path), next_average.id());
}

LearnerReport Learner::step(const ParameterTable& table, const std::vector<Tensor>& parameters,
                            std::vector<Tensor> gradients, const Tensor& loss,
                            const std::map<std::string, Metric>& metrics,
                            const std::vector<Tensor>& learning_rates,
                            const Renewal& renewal) const {
  const PhaseScope phase(Phase::kUpdate);
  Graph& graph = traced_graph();
  Scalars scalars{.count = scalar_state(kCount),
                  .drawn_labels = renewal.labels,
                  .renews = renewal.renews,
                  .learning_rates = learning_rates};
  const Tensor skipped = scalar_state(kSkipped);
  const Tensor in_a_row = scalar_state(kSkippedInARow);

  // Without skipping and clipping no update waits for the norm, and each frees its gradient.
  const bool awaited = p_.skip_nonfinite_steps || p_.skip_step_gradient_norm_value > 0.0 ||
                       p_.skip_step_deviations > 0.0 || p_.clip_gradient_norm_to_value > 0.0;
  const Tensor norm = norm_of_all(gradients, awaited ? NormPasses::kOne : NormPasses::kOneForEach);
  Tensor& apply = scalars.apply;
  apply = less_equal(f32(0.0), f32(0.0));
  if (p_.skip_nonfinite_steps) apply = logical_and(is_finite(norm), is_finite(loss));
  if (p_.skip_nonfinite_steps && !renewal.gradients.empty())
    apply = logical_and(apply, is_finite(norm_of_all(renewal.gradients, NormPasses::kOne)));
  if (p_.skip_step_gradient_norm_value > 0.0)
    apply = logical_and(apply, less_equal(norm, f32(p_.skip_step_gradient_norm_value)));
  StepDeviations deviations;
  if (p_.skip_step_deviations > 0.0 || p_.spike_deviations > 0.0)
    deviations = step_deviations(loss, norm, p_.skip_step_window);
  if (p_.skip_step_deviations > 0.0)
    apply = logical_and(apply, less_equal(maximum(deviations.loss, deviations.grad_norm),
                                          f32(p_.skip_step_deviations)));
  scalars.scale = p_.clip_gradient_norm_to_value > 0.0
                      ? clip_scale(p_.clip_gradient_norm_to_value, norm)
                      : f32(1.0);

  if (!transformations_.empty()) transform(table, parameters, gradients, scalars);

  size_t next_gradient = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& declared = table.parameters()[i];
    const PathScope path(declared.path);
    Gradients own;
    if (trains(declared)) {
      if (!renewal.gradients.empty()) own.drawn = renewal.gradients[next_gradient];
      own.gradient = gradients[next_gradient++];
      if (transformations_.empty()) own.gradient = clipped(own.gradient);
    }
    update(declared, parameters[i], own, metrics, scalars);
  }
  const Tensor one = where(apply, f32(1.0), f32(0.0));
  LearnerReport report{norm, apply, skipped + (1.0 - one), (in_a_row + 1.0) * (1.0 - one),
                       deviations};
  graph.add_update(std::string(kCount), (scalars.count + one).id());
  graph.add_update(std::string(kSkipped), report.skipped.id());
  graph.add_update(std::string(kSkippedInARow), report.skipped_in_a_row.id());
  return report;
}

}  // namespace tessera
