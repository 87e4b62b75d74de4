// SPDX-License-Identifier: Apache-2.0
// Where every value of a step lies: offsets in one arena, from liveness. Pure arithmetic; no
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// A collective may be split into a start, which other launches run beside, and a wait.
enum class LaunchKind { kRun, kStart, kWait };

struct Launch {
  const Graph* graph = nullptr;  // The (body) graph the node is in; kept alive by the StepPlan.
  NodeId node = kNone;
  std::vector<int64_t> inputs;  // Offsets in the arena.
  std::vector<int64_t> outputs;
  int64_t scratch = 0;
  LaunchKind kind = LaunchKind::kRun;
  int32_t waits_for = kNone;  // Of a wait: which launch started it. It has the same node.
};

struct Placement {
  std::string name;  // Of the graph input or output.
  InputKind kind = InputKind::kBatch;
  Type type;
  int64_t offset = 0;
};

// What lies in the arena at the fullest moment of a step, by class. `activations` is what the
// forward pass has left for the backward pass, `gradients` what waits for the update; `temporaries`
// is the rest of the peak, with what packing could not fill.
struct MemoryUse {
  int64_t parameters = 0, state = 0, batch = 0;
  int64_t activations = 0, gradients = 0, temporaries = 0;
  int64_t peak = 0;
};

// A flat list of launches, loops unrolled to concrete offsets. Persistent inputs (parameters and
// state) lie in [0, persistent_bytes), the rest above. Batch inputs and outputs keep their place
// for the whole step.
struct StepPlan {
  std::shared_ptr<const Graph> graph;    // Lowered and fused; launches point into it, its bodies,
  std::shared_ptr<const Graph> helpers;  // and this: copies and loop indices that planning adds.
  std::vector<Launch> launches;
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;  // Updates excepted: they are found where their input is.
  int64_t persistent_bytes = 0;
  int64_t arena_bytes = 0;
  MemoryUse use;
};

// What planning asks of the backend. Unset: no scratch; nothing may be overwritten.
struct KernelFacts {
  std::function<int64_t(const Graph&, const Node&)> scratch_bytes;
  std::function<bool(const Graph&, const Node&, int64_t output, int64_t input)> may_overwrite;
};

// Whether collectives are split into starts and waits (overlap.h) or run where they stand.
enum class Communication { kInline, kOverlapped };

// `persistent` fixes the offsets of inputs another program of the same arena has placed already.
StepPlan plan_memory(Graph lowered, const KernelFacts& facts,
                     const std::vector<Placement>& persistent = {},
                     Communication communication = Communication::kInline);

}  // namespace tessera
