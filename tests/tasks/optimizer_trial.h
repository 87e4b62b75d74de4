// SPDX-License-Identifier: Apache-2.0
// Runs an optimizer by itself: one parameter, gradients given from outside, any number of steps.
#pragma once

#include <string>
#include <vector>

#include "tasks/learner/optimizers/base_optimizer.h"

namespace tessera {

struct OptimizerTrial {
  Template<BaseOptimizer> optimizer_tpl;
  Type type;                      // Of the parameter.
  std::vector<double> parameter;  // Its values, updated by run().
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  double learning_rate = 0.1;
  std::vector<std::vector<double>> slots;  // Filled by run().

  // A step for each of the gradients; `apply` false: steps that are skipped.
  void run(const std::vector<std::vector<double>>& gradients, bool apply = true);
};

// `count` repeatable numbers in [-1, 1).
std::vector<double> some_numbers(int64_t count, uint64_t seed);

}  // namespace tessera
