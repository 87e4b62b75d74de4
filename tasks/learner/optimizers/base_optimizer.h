// SPDX-License-Identifier: Apache-2.0
// An optimizer: what it remembers of each parameter, and one step as graph ops. Clipping, masks and
// the skipping of bad steps are the learner's.
#pragma once

#include <string>
#include <vector>

#include "core/graph/tensor.h"
#include "core/graph/type.h"
#include "core/hparams/template.h"
#include "tasks/learner/schedules/base_schedule.h"

namespace tessera {

// One tensor of optimizer state, "learner/<name>/<parameter path>"; it begins at zero.
struct Slot {
  std::string name;
  Type type;
};

// What one parameter's step is computed from. Scalars are f32.
struct UpdateInputs {
  Tensor parameter;           // As it is at rest.
  std::vector<Tensor> slots;  // In the order of `slots()`.
  Tensor gradient;            // Of the parameter's type.
  Tensor gradient_scale;      // Multiplies the gradient: clipping.
  Tensor learning_rate;       // Schedule included.
  Tensor count;               // Updates applied so far.
  Tensor apply;               // bool: where false, everything comes back unchanged.
  double weight_decay = 0.0;  // Masks applied.
};

struct Updated {
  Tensor parameter;
  std::vector<Tensor> slots;
};

class BaseOptimizer {
 public:
  virtual ~BaseOptimizer() = default;
  virtual double learning_rate(int64_t step, int64_t num_train_steps) const = 0;
  virtual double weight_decay() const = 0;  // Of parameters that no mask excludes.
  virtual std::vector<Slot> slots(const Type& parameter) const = 0;
  virtual Updated update(const UpdateInputs& inputs) const = 0;
};

}  // namespace tessera
