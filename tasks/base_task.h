// SPDX-License-Identifier: Apache-2.0
// What a task is: a model, and the graphs that train, evaluate and query it. The trainer runs the
// graphs and feeds their scalars; it knows no mathematics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "layers/base_model.h"
#include "tasks/train_hparams.h"

namespace tessera {

// What graphs are traced for.
struct TraceSetting {
  Mesh mesh;
  AxisRules rules;
  Batch batch;  // The input's specification.
};

class BaseTask {
 public:
  virtual ~BaseTask() = default;
  virtual const BaseModel& model() const = 0;
  virtual const TrainHParams& train() const = 0;

  // A whole step: forward, gradients, clipping, update and metrics.
  virtual Graph train_graph(const TraceSetting& setting) const = 0;
  // Metric sums and weights of one batch.
  virtual Graph eval_graph(const TraceSetting& setting) const = 0;
  // The output "logits" of a batch.
  virtual Graph logits_graph(const TraceSetting& setting) const = 0;

  // The values of the train graph's scalar inputs at a step, f32 but for "step" (i32), by name.
  virtual std::map<std::string, double> scalars(int64_t step) const = 0;
};

}  // namespace tessera
