// SPDX-License-Identifier: Apache-2.0
// The learner: turns gradients into new weights and optimizer state, as graph ops. It clips, masks,
// skips steps with a non-finite gradient, averages weights and counts; the optimizer only steps.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "layers/parameter.h"
#include "layers/summaries.h"
#include "tasks/task/learner/gradient_transformations.h"
#include "tasks/task/learner/optimizer_rules.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/learner/path_patterns.h"

namespace tessera {

// By how many standard deviations a step's loss and gradient norm are above the mean of the window:
// the last steps with finite ones, skipped steps too, so that a lasting change is not skipped
// forever. 0 while it has less than half of its steps (Levanter's SkipStepConfig).
struct StepDeviations {
  Tensor loss, grad_norm;
};

// Scalars about one step, f32 unless said otherwise.
struct LearnerReport {
  Tensor grad_norm;  // Over all trained parameters, before clipping.
  Tensor applied;    // bool: whether the step was applied.
  Tensor skipped;    // Steps skipped so far.
  Tensor skipped_in_a_row;
  StepDeviations deviations;  // Invalid unless the learner keeps a window.
};

// Whether optimizers renew a part of their state in a step, and then, for those that read
// UpdateInputs::drawn_gradient, a gradient for each trained parameter, and the number of labels.
struct Renewal {
  bool renews = true;
  std::vector<Tensor> gradients = {};
  Tensor labels = {};  // f32 scalar.
};

class Learner {
 public:
  struct HParams {
    static constexpr std::string_view kName = "Learner";
    Template<BaseOptimizer> optimizer_tpl = AdamW::HParams{};  // For weights without a rule.
    std::vector<OptimizerRule> optimizer_rules;
    std::vector<LearningRateRule> learning_rate_rules;
    // Change gradients in this order, after the clipping that other fields ask for.
    std::vector<Template<BaseGradientTransformation>> gradient_transformations_tpl;
    double clip_gradient_norm_to_value = 0.0;  // Norm of all gradients together; 0: no clipping.
    double clip_gradient_single_norm_to_value = 0.0;  // Norm of each tensor; set at most one.
    // Regular expressions that match whole parameter paths.
    std::vector<std::string> weight_decay_exclusion;
    std::vector<std::string> bprop_variable_exclusion;  // Frozen.
    std::vector<std::string> bprop_variable_inclusion;  // If not empty: all others are frozen.
    bool skip_lp_1d_vectors = false;                    // No decay of biases and norm scales.
    bool skip_nonfinite_steps = true;
    double skip_step_gradient_norm_value = 0.0;  // Also skip above this norm; 0: never.
    double skip_step_deviations = 0.0;  // Also skip a step above these StepDeviations; 0: never.
    double spike_deviations = 0.0;      // Report a step above these; 0: never.
    int64_t skip_step_window = 128;     // Steps of the window for both.
    int64_t max_skipped_in_a_row = 10;  // The run then fails; 0: never.
    double ema_decay = 0.0;             // 0: no average of the weights.
    FIELDS(optimizer_tpl, optimizer_rules, learning_rate_rules, gradient_transformations_tpl,
           About(clip_gradient_norm_to_value, kNotNegative),
           About(clip_gradient_single_norm_to_value, kNotNegative), weight_decay_exclusion,
           bprop_variable_exclusion, bprop_variable_inclusion, skip_lp_1d_vectors,
           skip_nonfinite_steps, About(skip_step_gradient_norm_value, kNotNegative),
           About(skip_step_deviations, kNotNegative), About(spike_deviations, kNotNegative),
           About(skip_step_window, {.min = 2, .max = 1 << 16}),
           About(max_skipped_in_a_row, kNotNegative), About(ema_decay, kRate))
  };
  explicit Learner(const HParams& p);

  const HParams& hparams() const { return p_; }
  const MultiOptimizer& multi_optimizer() const { return optimizers_; }
  const std::vector<MultiOptimizer::Named>& optimizers() const { return optimizers_.all(); }
  // The optimizer of weights without a rule, or without optimizer_tpl that of the first rule.
  const BaseOptimizer& optimizer() const { return *optimizers()[0].optimizer; }
  // Whether it keeps averages of the weights, computed by the optimizer or with ema_decay.
  bool averages() const { return p_.ema_decay > 0.0 || optimizers_.averages(); }

  // Error for an expression that matches no parameter of the table, for a trained weight without an
  // optimizer or with several, or if all are frozen.
  void check(const ParameterTable& table) const;
  bool trains(const Parameter& parameter) const;
  // A table for --describe: weights' sizes relative to a base model (layers/parameter.h), and
  // factors of initial values, learning rates and decays; "" without a base model.
  std::string widths_text(const ParameterTable& table) const;

  // Traces the step: adds the learner's state as graph inputs, and updates of it and of the
  // parameters. The state is f32 scalars "learner/count", "learner/skipped" and
  // "learner/skipped_in_a_row", "learner/window_…" (newest first) if the learner keeps a window,
  // and "learner/<slot>/<path>" and "learner/ema/<path>" for parameters. `gradients` has one for
  // each trained parameter, in order; `loss` is not partial. `learning_rates` has one for each of
  // optimizers(). `metrics` of the layers move the weights that are balanced by them.
  LearnerReport step(const ParameterTable& table, const std::vector<Tensor>& parameters,
                     std::vector<Tensor> gradients, const Tensor& loss,
                     const std::map<std::string, Metric>& metrics,
                     const std::vector<Tensor>& learning_rates, const Renewal& renewal = {}) const;

 private:
  // The one whose rule the weight matches, which may consist of several (for_parameter).
  const BaseOptimizer& optimizer_of(const Parameter& declared) const;
  double weight_decay(const Parameter& parameter, const BaseOptimizer& optimizer) const;
  double width_factor(const Parameter& declared) const;  // By its optimizer.
  // The scalars of a step.
  struct Scalars {
    Tensor count, scale, apply, drawn_labels;
    bool renews = true;
    std::vector<Tensor> learning_rates;
  };
  // The gradients of one weight; both invalid: it is frozen.
  struct Gradients {
    Tensor gradient, drawn;
  };
  Tensor clipped(const Tensor& gradient) const;  // By clip_gradient_single_norm_to_value.
  // Clips gradients and calls the transformations.
  void transform(const ParameterTable& table, const std::vector<Tensor>& parameters,
                 std::vector<Tensor>& gradients, Scalars& scalars) const;
  // What the step does to one weight, which is `value`.
  void update(const Parameter& declared, Tensor value, const Gradients& gradients,
              const std::map<std::string, Metric>& metrics, const Scalars& scalars) const;
  // The optimizer's part of it.
  Updated optimize(const Parameter& declared, const Tensor& value, const Gradients& gradients,
                   const Tensor& average, const Scalars& scalars) const;

  HParams p_;
  MultiOptimizer optimizers_;
  std::vector<std::unique_ptr<BaseGradientTransformation>> transformations_;
  PathPatterns no_decay_, frozen_, trained_;
};

// The state that holds the average of a parameter.
std::string ema_name(std::string_view parameter_path);

}  // namespace tessera
