// SPDX-License-Identifier: Apache-2.0
// The time of one launch on a device, predicted from its types: the roofline of Williams, Waterman
// and Patterson (2009), with what kernels reach of each limit. Costs are facts of the op (OpDef),
// so that a new op has a price without an edit here. What belongs to the device is in its hardware
// file, what belongs to kernels in roofline.cc, each with its source. Nothing was measured by this
// program.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/prices/launch_cost.h"
#include "tasks/planner/prices/product_price.h"

namespace tessera {

// Prices a node of a lowered graph that is neither a loop nor a view.
LaunchCost launch_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                       const Hardware& hardware);

// Peak FLOP/s of the contractions of a node, by the dtype of its operands; that of 8-bit floats
// where the device multiplies those.
double product_peak(const Graph& graph, const Node& node, const Hardware& hardware);

// Operations of a launch, as KernelRate counts them.
double kernel_operations(const Graph& graph, const Node& node);

}  // namespace tessera
