// SPDX-License-Identifier: Apache-2.0
// The time of attention on a GPU: by our own kernels, whose launches are priced by what they do
// (attention_work.h), by cuDNN's, or at the published rates of the fastest kernels. Which one a run
// would use is in the hardware file. docs/planner.md compares the prices with measurements.
#pragma once

#include "core/graph/graph.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

struct AttentionPrice {
  AttentionKernels kernels = AttentionKernels::kPublished;
  double seconds = 0.0;
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
};
// Prices a node of `flops` FLOPs, without its bytes and the overhead of one launch.
AttentionPrice attention_price(const Graph& graph, const Node& node, double flops,
                               const Hardware& hardware);

}  // namespace tessera
