// SPDX-License-Identifier: Apache-2.0
// Which optimizer updates which weight, and with which learning rate.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tasks/task/learner/path_patterns.h"

namespace tessera {

namespace names {
inline constexpr std::string_view kLearningRate = "learning_rate";  // Input, f32 scalar.
}

// An optimizer for the weights whose whole paths a regular expression matches.
struct OptimizerRule {
  static constexpr std::string_view kName = "OptimizerRule";
  std::string name;  // The learning rate is logged as learning_rate/<name>.
  std::vector<std::string> paths;
  Template<BaseOptimizer> optimizer_tpl;
  FIELDS(name, paths, optimizer_tpl)
};

struct LearningRateRule {
  static constexpr std::string_view kName = "LearningRateRule";
  std::vector<std::string> paths;
  double multiplier = 1.0;
  FIELDS(paths, About(multiplier, "bprop_variable_exclusion freezes weights", kPositive))
};

// The optimizers of a learner: one with a name for each rule, and one for all other weights, which
// may be unset if every weight has a rule.
class MultiOptimizer {
 public:
  struct Named {
    std::string name;  // "": of the weights without a rule.
    std::unique_ptr<BaseOptimizer> optimizer;
    // The graph input with its rate: kLearningRate of the first, then "learning_rate/<name>".
    std::string learning_rate;
  };
  MultiOptimizer(const Template<BaseOptimizer>& others, const std::vector<OptimizerRule>& rules,
                 const std::vector<LearningRateRule>& multipliers);

  const std::vector<Named>& all() const { return all_; }  // First that for other weights.
  // The index in all() of the optimizer of the weight at this path.
  size_t index_of(std::string_view path) const;
  double multiplier(std::string_view path) const;  // A factor of its rate.
  bool averages() const;                           // Whether one of them does.
  bool reads_drawn_gradient() const;               // Whether one of them does.
  int64_t interval() const;                        // The longest of them.
  // A table and a drawing of the learning rates of a run, for --describe.
  std::string rates_text(int64_t num_train_steps) const;
  // Error for rules that match no weight or share one, and trained weights without an optimizer.
  void check(const ParameterTable& table, const std::vector<std::string>& trained) const;

 private:
  std::vector<Named> all_;
  PathRules rules_{"learner.optimizer_rules"};
  PathRules multiplier_rules_{"learner.learning_rate_rules"};
  std::vector<double> multipliers_;
};

}  // namespace tessera
