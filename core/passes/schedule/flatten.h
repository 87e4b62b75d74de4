// SPDX-License-Identifier: Apache-2.0
// A lowered graph as one flat list of launches over buffers: loops run out, views and stacked
// results turned into places within other buffers. What only loops read of a loop's results is
// never put together: each slice stays where it is, and dies with its last use. No offsets in the
// arena yet (see memory_plan.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/memory/memory_plan.h"

namespace tessera {

using BufferId = int32_t;

// A piece of memory. One that came to lie within another has that as `parent`.
struct FlatBuffer {
  int64_t bytes = 0;
  BufferId parent = kNone;
  int64_t parent_offset = 0;
  bool is_input = false;    // Of the graph.
  bool persistent = false;  // A parameter or state.
  // Launch numbers, inclusive; an input's `first` is -1. Meaningful for buffers without parent.
  int64_t first = 0, last = 0;
  Phase written_in = Phase::kForward, last_read_in = Phase::kForward;
};

// Where one value of one iteration lies.
struct FlatValue {
  BufferId buffer = kNone;
  int64_t offset = 0;
  int64_t bytes = 0;
  int32_t stack = kNone;  // Within flatten(): of what loops save for loops, the list of slices.
};

struct FlatLaunch {
  const Graph* graph = nullptr;
  NodeId node = kNone;
  std::vector<FlatValue> inputs, outputs;
  BufferId scratch = kNone;
  LaunchKind kind = LaunchKind::kRun;
  int32_t waits_for = kNone;  // Of a wait, which names the operands and results of its start.
};

struct FlatProgram {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<Graph> helpers;  // Nodes that planning adds: copies, loop indices.
  std::vector<FlatLaunch> launches;
  std::vector<FlatBuffer> buffers;
  std::vector<FlatValue> inputs;   // As the graph's inputs.
  std::vector<FlatValue> outputs;  // As the graph's outputs; of updates: where the input lies.

  // The buffer without parent in which `value` lies, and where in it.
  FlatValue root(FlatValue value) const;
};

// Appends the launch of a copy, which takes no scratch on any backend.
void add_copy(FlatProgram& program, const Type& type, FlatValue from, FlatValue to);

FlatProgram flatten(std::shared_ptr<const Graph> graph, const KernelFacts& facts);

}  // namespace tessera
