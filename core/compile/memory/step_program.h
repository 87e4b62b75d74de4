// SPDX-License-Identifier: Apache-2.0
// The program of a step for a backend: launches of kernels and collectives over one arena. Planning
// is pure arithmetic and needs no device. Its phases, each in a source of its own, are in
// flat_program.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/memory/kernel_facts.h"
#include "core/graph/graph.h"

namespace tessera {

struct Launch {
  const Graph* graph = nullptr;  // The (body) graph of the node; kept alive by the StepProgram.
  NodeId node;
  std::vector<int64_t> inputs;  // Byte offsets in the arena.
  std::vector<int64_t> outputs;
  int64_t scratch = 0;
  LaunchKind kind = LaunchKind::kRun;
  LaunchId waits_for;  // kWait: the launch of the start, which has the same node.
  int64_t task = -1;   // For a pipeline: an index into StepProgram::tasks.
};

// The place of a graph input or output.
struct Placement {
  std::string name;
  InputKind kind = InputKind::kBatch;
  Type type;
  int64_t offset = 0;
};

// Bytes in the arena at the time of its peak, by class. `activations` were computed by the forward
// pass and are read by the backward pass, `gradients` are read by the update; `temporaries` is the
// rest of the peak, including gaps between blocks.
struct MemoryUse {
  int64_t parameters = 0, state = 0, batch = 0;
  int64_t activations = 0, gradients = 0, temporaries = 0;
  int64_t peak = 0;
};

// A block of memory that is used during [first, last].
struct PackedBlock {
  int64_t bytes = 0;
  int64_t first = 0, last = 0;  // Inclusive: numbers of launches; -1 is before the first.
  int64_t offset = 0;           // Set by pack_arena().
};

// A flat list of launches with concrete offsets; loops are unrolled. Persistent inputs (parameters
// and state) are in [0, persistent_bytes). Batch inputs and outputs keep their memory for the whole
// step.
struct StepProgram {
  // Launches point into these graphs and their bodies.
  std::shared_ptr<const Graph> graph;    // Lowered and fused.
  std::shared_ptr<const Graph> helpers;  // Copies and loop indices added by planning.
  IndexedVector<LaunchId, Launch> launches;
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;  // Without updates, which are at the offset of their input.
  std::vector<std::string> tasks;  // Tasks of a pipeline, in order: "F0", "B3.1".
  int64_t persistent_bytes = 0;
  int64_t arena_bytes = 0;
  MemoryUse use;
  std::vector<PackedBlock> blocks;  // In the arena above persistent_bytes, where offsets begin.
};

// Whether collectives are split into starts and waits (overlap()) or run in place.
enum class Communication { kInline, kOverlapped };

// Plans a step. `persistent` are inputs that another program has placed in the same arena; they
// keep their offsets. Error if their types differ. `seconds` are for overlap().
StepProgram plan_memory(Graph lowered, const KernelFacts& facts,
                        const std::vector<Placement>& persistent = {},
                        Communication communication = Communication::kInline,
                        const LaunchSeconds& seconds = {});

// Returns the byte offset of a node's result within its first operand if the result is a view of
// it, else nullopt. In row-major layout, slices of the leading axis are views, and so are
// transpositions and broadcasts that move or add only axes of size 1.
std::optional<int64_t> view_offset(const Graph& graph, const Node& node);

inline constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Sets the offsets, multiples of kAlignment, so that blocks used at the same time do not overlap,
// and returns the size of the arena. Takes the better of two greedy heuristics.
int64_t pack_arena(std::vector<PackedBlock>& blocks);

// Returns the most bytes in use at one time: a lower bound on the size of the arena.
int64_t max_live_bytes(const std::vector<PackedBlock>& blocks);

}  // namespace tessera
