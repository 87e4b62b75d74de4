// SPDX-License-Identifier: Apache-2.0
// A lowered graph as a flat list of launches over buffers: loops and pipelines are unrolled, and
// views and stacked results become parts of other buffers. It is the input of planning a step:
// flatten.cc makes it, overlap.cc splits collectives, in_place.cc finds live ranges and overwrites
// dead values, and step_program.cc packs the buffers into the arena.
//
// A step has millions of launches, if it is one of a long pipeline: their operands are in blocks,
// not allocated for each launch, and facts that depend on the node alone are found once for each
// node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/compile/memory/kernel_facts.h"
#include "core/graph/graph.h"

namespace tessera {

using BufferId = Id<struct BufferTag>;
using StackId = Id<struct StackTag>;
using FlatNodeId = Id<struct FlatNodeTag>;

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
  StackId stack;  // Within flatten(): the slices of a result that only loops read.
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct FlatLaunch {
  const Graph* graph = nullptr;
  NodeId node;
  FlatNodeId flat_node;  // The node's index in FlatProgram::nodes.
  // Ranges of FlatProgram::values. After flatten() no operand is in a buffer that has a parent.
  std::span<FlatValue> inputs, outputs;
  BufferId scratch;
  LaunchKind kind = LaunchKind::kRun;
  LaunchId waits_for;  // kWait: the start, whose inputs and outputs are the inputs of the wait.
  int64_t task = -1;   // For a pipeline: an index into FlatProgram::tasks.
};

// Keeps values in blocks. Returned spans stay valid.
class FlatValues {
 public:
  std::span<FlatValue> add(size_t count);
  std::span<FlatValue> add(std::span<const FlatValue> values);

 private:
  std::vector<std::unique_ptr<FlatValue[]>> blocks_;
  std::span<FlatValue> free_;  // Rest of the last block.
};

struct FlatProgram {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<Graph> helpers;  // Copies and loop indices added by planning.
  IndexedVector<LaunchId, FlatLaunch> launches;
  IndexedVector<BufferId, FlatBuffer> buffers;
  IndexedVector<FlatNodeId, const Node*> nodes;  // The nodes that are launched.
  FlatValues values;
  std::vector<FlatValue> inputs;   // Values of the graph's inputs.
  std::vector<FlatValue> outputs;  // Values of the graph's outputs.
  std::vector<std::string> tasks;  // StepProgram::tasks.

  // Returns the value as part of the buffer without parent that contains it.
  FlatValue root(FlatValue value) const {
    for (;;) {
      const FlatBuffer& buffer = buffers[value.buffer];
      if (buffer.parent == kNone) return value;
      value = {.buffer = buffer.parent,
               .offset = value.offset + buffer.parent_offset,
               .bytes = value.bytes};
    }
  }
};

// Appends the launch of a copy, which needs no scratch memory.
void add_copy(FlatProgram& program, const Type& type, FlatValue from, FlatValue to);

// Makes the flat program of a graph. A stacked result that only loops read is kept as separate
// slices, each freed after its last use. Offsets in the arena follow later.
FlatProgram flatten(std::shared_ptr<const Graph> graph, const KernelFacts& facts);

// Overlaps communication with computation: splits every collective into a start and a wait
// (LaunchKind). No result depends on these decisions. Collectives run one after another in the
// order of their starts, so a collective may read the result of an earlier one without a wait.
//
// A wait precedes the first other launch that uses the result. All-gathers of weights, with the
// casts before them, are prefetched up to one layer's gathered bytes ahead (as in FSDP). Other
// collectives, mainly reductions of gradients, start as soon as their operands are computed; the
// oldest are waited for when the bytes in flight would exceed those of one layer and the sends of
// one task of a pipeline. These limits bound the additional memory. Receives start where they are,
// and launches shared with devices of other programs (core/ops/send.h) keep their order.
//
// With `seconds`, an all-gather of weights starts as late as it can without stopping kernels
// (gather_starts.cc), and at most two layers' gathered bytes ahead: one that takes long starts
// earlier than without them, one that takes little starts later and needs its memory for less time.
void overlap(FlatProgram& program, const LaunchSeconds& seconds = {});

// Places the next value of each state in the memory of the state: in place if no later launch reads
// the old value and the kernel allows it, otherwise by a copy at the end. Other outputs may
// overwrite inputs that are not read later, and the slices of a stack those of another stack. Sets
// the live ranges of all buffers.
void write_in_place(FlatProgram& program, const KernelFacts& facts);

}  // namespace tessera
