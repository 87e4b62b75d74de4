// SPDX-License-Identifier: Apache-2.0
// Checks a step before it runs: its axis rules (unknown mesh axes, logical axes that no tensor has,
// misspelt roles, mesh axes over which nothing is sharded) and the token ids of a batch. The ids
// are checked on the host: a device reads zeros for an id outside the table, and reports no error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"

namespace tessera {

// Error, with the nearest name, for a rule with an unknown mesh axis; and for one that names
// `stage`, unless it is the rule layers -> stage of weights.
void check_rules(const AxisRules& rules, const Mesh& mesh);

// Error, with the nearest name, for a rule whose logical axis is neither in `traced` nor in the
// vocabulary (docs/graph.md). With the rule layers -> stage, also for a value that has another axis
// split over `stage`.
void check_rules(const AxisRules& rules, const Graph& traced);

// A warning for each mesh axis of size > 1 over which `traced` shards no tensor: its devices repeat
// each other's work.
std::vector<std::string> idle_mesh_axes(const AxisRules& rules, const Mesh& mesh,
                                        const Graph& traced);

// The size of the shortest axis that the elements of an array are looked up in, and where.
struct LookupBound {
  int64_t size = 0;
  std::string where;  // "'vocab' in lm.softmax (layers/embeddings/embedding_softmax.cc:50)".
};
using LookupBounds = std::map<std::string, LookupBound>;  // By array of the batch: "ids", "labels".

// The bounds of the arrays of the batch that a traced step uses as ids unchanged, in any layout.
LookupBounds lookup_bounds(const Graph& traced);

// Error for an element that is negative or not below its bound. Labels of weight 0 may be anything:
// they do not enter the loss. `where` begins the message: "input 'train', batch 3".
void check_batch(const Batch& batch, const LookupBounds& bounds, const std::string& where);

}  // namespace tessera
