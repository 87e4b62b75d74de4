// SPDX-License-Identifier: Apache-2.0
// The FLOPs, bytes and collectives of a graph, from its types alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Multiplications and additions of one execution of a node or graph. Loop bodies count once per
// iteration.
double node_flops(const Graph& graph, const Node& node);
double graph_flops(const Graph& graph);

// Whether the FLOPs of a node count for MFU: products of the model, but not those of a
// recomputation or of the optimizer.
bool is_model_product(const Node& node);
// FLOPs of the model's products in one step as traced, by dtype: causal attention counts its lower
// triangle.
std::map<DType, double> model_flops(const Graph& traced);

// Bytes that one execution of a node reads and writes in memory. Not for loops.
double node_bytes(const Graph& graph, const Node& node);

// Bytes that one execution of a collective sends from a device. In a permute some devices keep
// their shard: those of the others.
int64_t sent_bytes(const Graph& graph, const Node& node);

// A collective of the graph of one device, with the layer line it serves.
struct CollectiveUse {
  std::string op;     // "all_gather"
  std::string value;  // The result (of a send: what is sent), as Graph::describe names it.
  std::vector<std::string> mesh_axes;  // In the order of the split.
  DType dtype = DType::kF32;
  int64_t bytes = 0;  // Sent by a device per execution (permute: by a device whose shard moves).
  int64_t count = 0;  // Executions per step.
  SourceSite site;
  std::string path;
  Phase phase = Phase::kForward;
  int64_t bytes_per_step() const { return bytes * count; }
};

// The collectives of a lowered graph in its order, those of loop bodies at the loop; a transfer is
// in the list of its sender. Uses that differ only in the count are merged.
std::vector<CollectiveUse> collectives(const Graph& lowered);

// Bytes that one device sends per step.
int64_t bytes_per_step(const std::vector<CollectiveUse>& uses);

}  // namespace tessera
