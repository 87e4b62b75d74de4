// SPDX-License-Identifier: Apache-2.0
// The sizes of the batches of a training run, which its phases change (task.train.phases).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "tasks/task/hparams.h"

namespace tessera {

// The size of the batches of the steps from `start_step` to before `end_step`.
struct StepSize {
  int64_t start_step = 0;
  int64_t end_step = std::numeric_limits<int64_t>::max();
  int64_t rows = 0;        // A global batch has this many.
  int64_t seq_len = 0;     // Tokens of a row; 0 if rows are not sequences of tokens.
  int64_t tokens = 0;      // All of a global batch; 0 if it has no ids.
  int64_t input_rows = 0;  // Rows of the input that a batch is cut from.
  size_t program = 0;      // Phases of one size share a step program.
  std::string where;       // For errors: "task.train.phases[1] (8 rows of 16 tokens)", or "".

  int64_t steps_before(int64_t step) const;
};

class StepSizes {
 public:
  // Without phases: one, of the input's own size. Error, with the phase, if the input cannot have
  // these sizes.
  StepSizes(const std::vector<TrainPhase>& phases, const BaseInput& input);

  const std::vector<StepSize>& phases() const { return phases_; }
  bool are_given() const { return !phases_.front().where.empty(); }
  bool change_rows() const { return change_rows_; }  // Whether the input gets Infeed::sizes.
  // The phase of a step, counted from 0.
  const StepSize& at(int64_t step) const;
  int64_t tokens_before(int64_t step) const;
  // The first phase with the most tokens in a step: that of plans and drawings.
  const StepSize& main() const;
  // Cuts the rows of a batch of the input, or of its specification, to those of the phase.
  void cut(Batch& batch, const StepSize& size) const;

 private:
  int64_t own_length_ = 0;
  bool change_rows_ = false;
  std::vector<StepSize> phases_;
};

// The specification of the global batches of a phase, which is traced.
Batch global_specification(const BaseInput& input, const StepSize& size);

// The infeed of process `process` of `processes` with this many devices each; 0: a plan, without
// rows. Error if the mesh cannot hold a batch of these sizes.
Infeed process_infeed(const StepSizes& sizes, const Mesh& mesh, const AxisRules& rules,
                      int64_t process, int64_t processes, int64_t devices);

}  // namespace tessera
