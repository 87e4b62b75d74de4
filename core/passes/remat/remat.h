// SPDX-License-Identifier: Apache-2.0
// Rematerialisation: forward values that the backward pass recomputes instead of keeping them in
// memory (Chen et al., "Training deep nets with sublinear memory cost", 2016).
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/remat/remat_policy.h"

namespace tessera {

struct SavedValue {
  std::string name;  // The name of the mark, else of the op.
  std::string path;
  Type type;  // Global; of all iterations of a loop.
};

// The graph with recomputation inserted before the first use in the backward pass. Under every
// policy the recompute_candidates() (loop_body.h) are recomputed. `saved`, if not null, receives
// the values kept from the forward to the backward pass.
Graph rematerialize(const Graph& graph, const RematPolicy& policy,
                    std::vector<SavedValue>* saved = nullptr);

}  // namespace tessera
