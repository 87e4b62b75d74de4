// SPDX-License-Identifier: Apache-2.0
// The graphs of a pipeline's tasks: each computes one piece of one microbatch. They are equal for
// all microbatches, and together they compute the body of the loop over microbatches.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "core/compile/stages/placement.h"
#include "core/graph/layer_pieces.h"

namespace tessera {

// A value of the body of the loop over microbatches. `piece` is that of its layers; kWhole for a
// value outside the layers.
struct PieceValue {
  static constexpr int64_t kWhole = -1;
  ValueId value;
  int64_t piece = kWhole;
  auto operator<=>(const PieceValue&) const = default;
};

// A sum over microbatches that a stage keeps. The sum of a gradient of stacked weights has a part
// for each chunk of the stage; others are the terms of the stage alone.
struct PartialSum {
  static constexpr int64_t kWhole = -1;
  size_t carry = 0;  // Carry of the loop over microbatches.
  int64_t chunk = kWhole;
  auto operator<=>(const PartialSum&) const = default;
};

// The source of an input of a task's graph: an operand of the loop over microbatches, or a task.
struct TaskInput {
  enum class Kind { kSum, kSlice, kConstant, kValue };
  Kind kind = Kind::kValue;
  PartialSum sum;    // kSum.
  size_t index = 0;  // kSlice, kConstant: its index in the loop over microbatches.
  PieceValue value;  // kValue: made by another task, for the same microbatch.
};

struct TaskOutput {
  enum class Kind { kSum, kResult, kValue };
  Kind kind = Kind::kValue;
  PartialSum sum;    // kSum: its next value.
  size_t index = 0;  // kResult: its index in the loop over microbatches.
  PieceValue value;  // kValue: for other tasks.
};

struct TaskBody {
  Graph graph;                    // Its first input is the number of the microbatch (i32 scalar).
  std::vector<TaskInput> inputs;  // Sources of the other inputs.
  std::vector<TaskOutput> outputs;
};

struct TaskBodies {
  std::map<PieceTask, TaskBody> bodies;
  // The task that makes each value that others read.
  std::map<PieceValue, PieceTask> makers;
  // For each carry of the loop over microbatches: the stages that have terms of it, ascending;
  // empty for stacked gradients, whose sums are divided among the stages.
  std::vector<std::vector<int64_t>> stages_of_sums;
  // For each stacked result of the loop: its stage.
  std::vector<int64_t> stage_of_results;
};

TaskBodies make_task_bodies(const Loop& microbatches, const TaskPlacement& placement,
                            const LayerPieces& pieces);

}  // namespace tessera
