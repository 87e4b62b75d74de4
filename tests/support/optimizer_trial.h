// SPDX-License-Identifier: Apache-2.0
// Runs an optimizer alone: one parameter, given gradients, any number of steps.
#pragma once

#include <string>
#include <vector>

#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

struct OptimizerTrial {
  Template<BaseOptimizer> optimizer_tpl;
  Type type;                      // Type of the parameter.
  std::vector<double> parameter;  // Updated by run().
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  double learning_rate = 0.1;
  std::vector<double> learning_rates;      // By step; empty: learning_rate.
  FanAxes fans;                            // The declaration of the parameter.
  std::vector<std::vector<double>> slots;  // Set by run(), as is
  std::vector<double> average;             // BaseOptimizer::averages().

  // Takes one step per gradient; with `apply` false the steps are skipped.
  void run(const std::vector<std::vector<double>>& gradients, bool apply = true);
};

// `count` deterministic numbers in [-1, 1).
std::vector<double> some_numbers(int64_t count, uint64_t seed);

}  // namespace tessera
