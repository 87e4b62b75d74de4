// SPDX-License-Identifier: Apache-2.0
// A lowered graph as a flat list of launches over buffers: loops are unrolled, and views and
// stacked results become parts of other buffers. A stacked result that only loops read is kept as
// separate slices, each of which is freed after its last use. Offsets in the arena are assigned
// later (memory/memory_plan.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/step_plan.h"

namespace tessera {

using BufferId = Id<struct BufferTag>;
using StackId = Id<struct StackTag>;

// A block of memory, possibly a part of the block `parent`.
struct FlatBuffer {
  int64_t bytes = 0;
  BufferId parent;
  int64_t parent_offset = 0;
  bool is_input = false;    // Holds a graph input.
  bool persistent = false;  // A parameter or state.
  // The live range in numbers of launches, inclusive; `first` is -1 for inputs. Not set for buffers
  // with a parent.
  int64_t first = 0, last = 0;
  Phase written_in = Phase::kForward, last_read_in = Phase::kForward;
};

// The memory of a value in one iteration.
struct FlatValue {
  BufferId buffer;
  int64_t offset = 0;
  int64_t bytes = 0;
  StackId stack;  // Within flatten(): the slices of a result that only loops read.
};

struct FlatLaunch {
  const Graph* graph = nullptr;
  NodeId node;
  std::vector<FlatValue> inputs, outputs;
  BufferId scratch;
  LaunchKind kind = LaunchKind::kRun;
  LaunchId waits_for;  // kWait: the start, whose inputs and outputs are the inputs of the wait.
};

struct FlatProgram {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<Graph> helpers;  // Copies and loop indices added by planning.
  IndexedVector<LaunchId, FlatLaunch> launches;
  IndexedVector<BufferId, FlatBuffer> buffers;
  std::vector<FlatValue> inputs;   // Of the graph's inputs.
  std::vector<FlatValue> outputs;  // Of the graph's outputs.

  // The value as part of the buffer without parent that contains it.
  FlatValue root(FlatValue value) const;
};

// Appends the launch of a copy, which needs no scratch memory.
void add_copy(FlatProgram& program, const Type& type, FlatValue from, FlatValue to);

// The byte offset of a node's result within its first operand if the result is a view of it, else
// nullopt. In row-major layout, slices of the leading axis are views, and so are transpositions and
// broadcasts that move or add only axes of size 1.
std::optional<int64_t> view_offset(const Graph& graph, const Node& node);

FlatProgram flatten(std::shared_ptr<const Graph> graph, const KernelFacts& facts);

}  // namespace tessera
