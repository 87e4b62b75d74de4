// SPDX-License-Identifier: Apache-2.0
// The learner: from gradients to new weights and optimizer state, as graph ops. It clips, masks,
// skips steps whose gradient is no number, averages weights, and counts; the optimizer only steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/tensor.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "layers/parameter.h"
#include "tasks/learner/optimizers/adam.h"
#include "tasks/learner/path_patterns.h"

namespace tessera {

// A persistent tensor of the learner, zero at first (averages begin as the weight they follow).
struct LearnerState {
  std::string name;  // "learner/m/lm.softmax.w", "learner/count"
  Type type;
  std::string starts_as;  // The parameter whose initial value it takes; empty: zero.
};

// What one step tells about itself; f32 scalars unless said.
struct LearnerReport {
  Tensor grad_norm;  // Before clipping; of trained parameters.
  Tensor applied;    // bool: whether the step was taken.
  Tensor skipped;    // Steps skipped so far.
  Tensor skipped_in_a_row;
};

class Learner {
 public:
  struct HParams {
    static constexpr std::string_view kName = "Learner";
    Template<BaseOptimizer> optimizer_tpl = AdamW::HParams{};
    double clip_gradient_norm_to_value = 0.0;         // Of all gradients together; 0: no clipping.
    double clip_gradient_single_norm_to_value = 0.0;  // Of each tensor's; not both.
    // Regular expressions over whole parameter paths.
    std::vector<std::string> weight_decay_exclusion;
    std::vector<std::string> bprop_variable_exclusion;  // Frozen.
    std::vector<std::string> bprop_variable_inclusion;  // If any: all others are frozen.
    bool skip_lp_1d_vectors = false;                    // No decay of biases and norm scales.
    bool skip_nonfinite_steps = true;
    double skip_step_gradient_norm_value = 0.0;  // Also skip above this norm; 0: never.
    int64_t max_skipped_in_a_row = 10;           // The run fails after as many; 0: never.
    double ema_decay = 0.0;                      // 0: no average of weights is kept.
    FIELDS(optimizer_tpl, clip_gradient_norm_to_value, clip_gradient_single_norm_to_value,
           weight_decay_exclusion, bprop_variable_exclusion, bprop_variable_inclusion,
           skip_lp_1d_vectors, skip_nonfinite_steps, skip_step_gradient_norm_value,
           max_skipped_in_a_row, ema_decay)
  };
  explicit Learner(const HParams& p);

  const HParams& hparams() const { return p_; }
  const BaseOptimizer& optimizer() const { return *optimizer_; }
  bool averages() const { return p_.ema_decay > 0.0; }

  // Errors for an expression that matches no parameter of the table.
  void check(const ParameterTable& table) const;
  bool trains(std::string_view path) const;
  double weight_decay(const Parameter& parameter) const;
  // Its persistent tensors for these parameters, whose types carry the layout at rest.
  std::vector<LearnerState> state(const ParameterTable& table,
                                  const std::vector<Type>& stored) const;

  // Traces the step into the graph: adds the state as inputs and updates of it and of the
  // parameters. `gradients` has one for each trained parameter, in order; `loss` is finished.
  LearnerReport step(const ParameterTable& table, const std::vector<Tensor>& parameters,
                     const std::vector<Tensor>& gradients, const Tensor& loss,
                     const Tensor& learning_rate) const;

 private:
  HParams p_;
  std::unique_ptr<BaseOptimizer> optimizer_;
  PathPatterns no_decay_, frozen_, trained_;
};

// Where the average of a parameter is kept.
std::string ema_name(std::string_view parameter_path);

}  // namespace tessera
