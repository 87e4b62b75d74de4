// SPDX-License-Identifier: Apache-2.0
// What a lowered graph communicates in one step, each collective with the line of layer code that
// it serves: what plans print and tests compare with textbooks. It runs nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

struct CollectiveUse {
  std::string op;                      // "all_gather"
  std::string value;                   // What it moves, as messages call it.
  std::vector<std::string> mesh_axes;  // Over which, in the order of the split.
  DType dtype = DType::kF32;
  int64_t bytes = 0;  // Sent by a device in one execution; of a permute, by one that moves.
  int64_t count = 0;  // Executions a step, with loops run out.
  SourceSite site;
  std::string path;
  Phase phase = Phase::kForward;
  int64_t bytes_per_step() const { return bytes * count; }
};

// In the order of the graph, a loop's where the loop stands. Uses that differ in nothing but the
// count are one.
std::vector<CollectiveUse> collectives(const Graph& lowered);

// Bytes that one device sends in a step.
int64_t bytes_per_step(const std::vector<CollectiveUse>& uses);

}  // namespace tessera
