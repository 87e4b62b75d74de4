// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/learner.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {
namespace {

constexpr std::string_view kCount = "learner/count";
constexpr std::string_view kSkipped = "learner/skipped";
constexpr std::string_view kSkippedInARow = "learner/skipped_in_a_row";

std::string slot_name(const Slot& slot, std::string_view path) {
  return fmt::format("learner/{}/{}", slot.name, path);
}

Tensor scalar_state(std::string_view name) {
  return input(std::string(name), InputKind::kState, make_type(DType::kF32, {}));
}

Tensor f32(double value) { return constant(value, DType::kF32); }

// min(1, limit / norm). (With a non-finite norm the step is skipped.)
Tensor clip_scale(double limit, const Tensor& norm) { return minimum(f32(limit) / norm, f32(1.0)); }

bool is_vector(const Parameter& parameter) {
  return parameter.type.rank() - (parameter.stack > 0 ? 1 : 0) <= 1;
}

bool matches(const std::regex& pattern, std::string_view path) {
  return std::regex_match(path.begin(), path.end(), pattern);
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

PathPatterns::PathPatterns(const std::vector<std::string>& patterns, std::string_view field)
    : field_(field), texts_(patterns) {
  for (const std::string& text : texts_) {
    try {
      patterns_.emplace_back(text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      fail("{}: '{}' is not a regular expression ({})", field_, text, error.what());
    }
  }
}

bool PathPatterns::match(std::string_view path) const {
  return std::ranges::any_of(patterns_, [&](const auto& each) { return matches(each, path); });
}

void PathPatterns::check(const ParameterTable& table) const {
  std::vector<std::string> paths;
  for (const Parameter& each : table.parameters()) paths.push_back(each.path);
  for (size_t i = 0; i < patterns_.size(); ++i)
    if (std::ranges::none_of(paths, [&](const auto& path) { return matches(patterns_[i], path); }))
      fail("{}: '{}' matches no parameter{}; it must match a whole path, such as '{}'", field_,
           texts_[i], did_you_mean(texts_[i], paths), paths.empty() ? "" : paths.front());
}

std::string ema_name(std::string_view parameter_path) {
  return fmt::format("learner/ema/{}", parameter_path);
}

Learner::Learner(const HParams& p)
    : p_(p),
      optimizer_(p.optimizer_tpl.instantiate()),
      no_decay_(p.weight_decay_exclusion, "weight_decay_exclusion"),
      frozen_(p.bprop_variable_exclusion, "bprop_variable_exclusion"),
      trained_(p.bprop_variable_inclusion, "bprop_variable_inclusion") {
  if (p.clip_gradient_norm_to_value > 0.0 && p.clip_gradient_single_norm_to_value > 0.0)
    fail(
        "learner: clip_gradient_norm_to_value={} and clip_gradient_single_norm_to_value={} "
        "exclude each other; set one of them to 0",
        p.clip_gradient_norm_to_value, p.clip_gradient_single_norm_to_value);
}

void Learner::check(const ParameterTable& table) const {
  no_decay_.check(table);
  frozen_.check(table);
  trained_.check(table);
  bool any = false;
  for (const Parameter& each : table.parameters()) {
    if (!trains(each)) continue;
    optimizer_->for_parameter(each);
    any = true;
  }
  if (any) return;
  fail(
      "learner: every parameter is frozen, so there is nothing to train; see "
      "bprop_variable_exclusion and bprop_variable_inclusion");
}

bool Learner::trains(const Parameter& parameter) const {
  if (parameter.balanced_by) return false;
  return !frozen_.match(parameter.path) && (trained_.empty() || trained_.match(parameter.path));
}

double Learner::weight_decay(const BaseOptimizer& optimizer, const Parameter& parameter) const {
  if (p_.skip_lp_1d_vectors && is_vector(parameter)) return 0.0;
  return no_decay_.match(parameter.path) ? 0.0 : optimizer.weight_decay();
}

LearnerReport Learner::step(const ParameterTable& table, const std::vector<Tensor>& parameters,
                            const std::vector<Tensor>& gradients, const Tensor& loss,
                            const std::map<std::string, Metric>& metrics,
                            const Tensor& learning_rate) const {
  const PhaseScope phase(Phase::kUpdate);
  Graph& graph = traced_graph();
  const Tensor count = scalar_state(kCount);
  const Tensor skipped = scalar_state(kSkipped);
  const Tensor in_a_row = scalar_state(kSkippedInARow);

  // Without skipping and clipping no update waits for the norm, and each frees its gradient.
  const bool awaited = p_.skip_nonfinite_steps || p_.skip_step_gradient_norm_value > 0.0 ||
                       p_.clip_gradient_norm_to_value > 0.0;
  const Tensor norm = norm_of_all(gradients, awaited ? NormPasses::kOne : NormPasses::kOneForEach);
  Tensor apply = less_equal(f32(0.0), f32(0.0));
  if (p_.skip_nonfinite_steps) apply = logical_and(is_finite(norm), is_finite(loss));
  if (p_.skip_step_gradient_norm_value > 0.0)
    apply = logical_and(apply, less_equal(norm, f32(p_.skip_step_gradient_norm_value)));
  const Tensor scale = p_.clip_gradient_norm_to_value > 0.0
                           ? clip_scale(p_.clip_gradient_norm_to_value, norm)
                           : f32(1.0);

  size_t next_gradient = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& declared = table.parameters()[i];
    const PathScope path(declared.path);
    Tensor value = parameters[i];
    if (trains(declared)) {
      Tensor gradient = gradients[next_gradient++];
      if (p_.clip_gradient_single_norm_to_value > 0.0)
        gradient = gradient * clip_scale(p_.clip_gradient_single_norm_to_value,
                                         sqrt(sum_of_squares(gradient)));
      const BaseOptimizer& optimizer = optimizer_->for_parameter(declared);
      const std::vector<Slot> slots = checked_slots(optimizer, declared.path, value.type());
      UpdateInputs inputs{declared.path,
                          value,
                          {},
                          gradient,
                          scale,
                          learning_rate_of(optimizer, *optimizer_, learning_rate),
                          count,
                          apply,
                          weight_decay(optimizer, declared),
                          matrix_axes(declared).value_or(FanAxes{})};
      for (const Slot& slot : slots)
        inputs.slots.push_back(input(slot_name(slot, declared.path), InputKind::kState, slot.type));
      const Updated updated = checked_update(optimizer, inputs);
      value = updated.parameter;
      graph.add_update(declared.path, value.id());
      for (size_t s = 0; s < slots.size(); ++s)
        graph.add_update(slot_name(slots[s], declared.path), updated.slots[s].id());
    }
    if (declared.balanced_by) {
      value = where(apply, balanced(value, *declared.balanced_by, metrics), value);
      graph.add_update(declared.path, value.id());
    }
    if (averages()) {
      const Tensor old = input(ema_name(declared.path), InputKind::kState, value.type());
      const Tensor next = old + (value - old) * (1.0 - p_.ema_decay);
      graph.add_update(ema_name(declared.path), where(apply, next, old).id());
    }
  }
  const Tensor one = where(apply, f32(1.0), f32(0.0));
  LearnerReport report{norm, apply, skipped + (1.0 - one), (in_a_row + 1.0) * (1.0 - one)};
  graph.add_update(std::string(kCount), (count + one).id());
  graph.add_update(std::string(kSkipped), report.skipped.id());
  graph.add_update(std::string(kSkippedInARow), report.skipped_in_a_row.id());
  return report;
}

}  // namespace tessera
