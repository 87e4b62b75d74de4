// SPDX-License-Identifier: Apache-2.0
// Decides, evaluation by evaluation, whether a run is good enough or has stopped improving.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "tasks/config/train_hparams.h"

namespace tessera {

class EarlyStopper {
 public:
  explicit EarlyStopper(const EarlyStopping& p) : p_(p) {}

  // Takes the metrics of one evaluation ("eval/validation/log_pplx", …). Returns why to stop, or
  // "" to go on. They hold the metric watched.
  std::string observe(const std::map<std::string, double>& metrics);

  // What a resumed run needs to decide as an unbroken one would.
  struct State {
    double best = std::numeric_limits<double>::infinity();
    int64_t evals_since_best = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  EarlyStopping p_;
  State state_;
};

}  // namespace tessera
