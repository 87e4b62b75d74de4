// SPDX-License-Identifier: Apache-2.0
// Checks the ids of a batch on the host: on a device, a lookup of an id outside its table gives
// zeros, and a run would train on them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/graph/graph.h"
#include "inputs/base_input.h"

namespace tessera {

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
