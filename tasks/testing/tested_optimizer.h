// SPDX-License-Identifier: Apache-2.0
// Tests for authors of optimizers: the steps of one weight with given gradients, in f64 by the
// reference interpreter, with the checks of a run. The schedule is that of the optimizer. One that
// reads UpdateInputs::drawn_gradient gets the same gradient there in each step, of 64 labels.
//
//   TestedOptimizer sgd(Sgd::HParams{.learning_rate = 0.1}, {.weight = {1, 2}});
//   sgd.step({10, 0});
//   expect_near(sgd.weight(), {0, 2});
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/devices/reference/interpreter.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

struct OptimizerSetting {
  std::string path = "w";
  std::string type;  // "f32[\"embed=4 mlp=2\"]"; "": one axis with the elements of `weight`.
  std::vector<double> weight;  // Before the first step.
  int64_t num_train_steps = 100;
  FanAxes fans = {};  // As declared with a weight of the model.
  MeshConfig mesh = {};
  RulesConfig rules = {};
};

class TestedOptimizer {
 public:
  explicit TestedOptimizer(const Template<BaseOptimizer>& optimizer_tpl, OptimizerSetting setting);
  void step(const std::vector<double>& gradient);
  const std::vector<double>& weight() const { return state_.at(setting_.path); }
  const std::vector<double>& average() const { return state_.at("average"); }
  const std::vector<double>& slot(const std::string& name) const;  // Zeros before the first step.

 private:
  OptimizerSetting setting_;
  std::unique_ptr<BaseOptimizer> optimizer_;
  Mesh mesh_;
  Graph graph_;            // One step.
  ReferenceInputs state_;  // The weight and the slots.
  int64_t steps_ = 0;
};

}  // namespace tessera
