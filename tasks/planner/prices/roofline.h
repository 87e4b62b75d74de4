// SPDX-License-Identifier: Apache-2.0
// The time of one launch on a device, predicted from its types: the roofline of Williams, Waterman
// and Patterson (2009), with what kernels reach of each limit. Costs are facts of the op (OpDef),
// so that a new op has a price without an edit here. What belongs to the device is in its hardware
// file, what belongs to kernels in roofline.cc, each with its source. Nothing was measured by this
// program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/prices/product_price.h"

namespace tessera {

// What a launch waits for most.
enum class Limit { kProducts, kArithmetic, kMemory, kLinks, kLaunch };

// What a launch costs.
struct LaunchCost {
  double seconds = 0.0;      // With the gap before the next launch.
  double copies = 0.0;       // The part of it that copies operands or results of a product.
  double flops = 0.0;        // Executed; for contractions those of their matrix products.
  double bytes = 0.0;        // Moved in memory; for collectives, sent.
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
  Limit limit = Limit::kMemory;
  std::string_view kernels;  // For attention, whose kernels were priced: "own"; else empty.
};

// Prices a node of a lowered graph that is neither a loop nor a view.
LaunchCost launch_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                       const Hardware& hardware);

// Peak FLOP/s of the contractions of a node, by the dtype of its operands; that of 8-bit floats
// where the device multiplies those.
double product_peak(const Graph& graph, const Node& node, const Hardware& hardware);

// Operations of a launch, as KernelRate counts them.
double kernel_operations(const Graph& graph, const Node& node);

struct AttentionPrice {
  AttentionKernels kernels = AttentionKernels::kPublished;
  double seconds = 0.0;
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
};
// Prices a node of `flops` FLOPs, without its bytes and the overhead of one launch.
AttentionPrice attention_price(const Graph& graph, const Node& node, double flops,
                               const Hardware& hardware);

// Prices a collective of a lowered graph that is alone on its links.
LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware);

// Whether one of the mesh axes spans slices, and whether a collective uses the links between them.
bool span_slices(const std::vector<std::string>& mesh_axes, const Mesh& mesh);
bool crosses_slices(const Node& collective, const Mesh& mesh);

}  // namespace tessera
