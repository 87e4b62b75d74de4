// SPDX-License-Identifier: Apache-2.0
// Which values of a graph matter to a derivative, found without tracing anything.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Per value: whether it is floating and depends on a value in `seeds` through nodes before `end`.
// (What passes a stop_gradient does not.)
std::vector<bool> depends_on(const Graph& graph, const std::vector<ValueId>& seeds, NodeId end);

// Per value: whether it is `active` and a value in `seeds` may depend on it through active values.
std::vector<bool> reached_from(const Graph& graph, const std::vector<ValueId>& seeds,
                               const std::vector<bool>& active, NodeId end);

}  // namespace tessera
