// SPDX-License-Identifier: Apache-2.0
// A schedule: a factor on the learning rate as a pure function of the step, computed on the host
// before each step and fed to the program as a scalar.
#pragma once

#include <cstdint>

#include "core/hparams/template.h"

namespace tessera {

class BaseSchedule {
 public:
  virtual ~BaseSchedule() = default;
  // The factor at `step` (0, 1, …) of a run of `num_train_steps`.
  virtual double value(int64_t step, int64_t num_train_steps) const = 0;
};

}  // namespace tessera
