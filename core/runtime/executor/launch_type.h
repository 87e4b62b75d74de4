// SPDX-License-Identifier: Apache-2.0
// Describes the work of a launch in one line that is equal in every program and on every device of
// a mesh: the key of measured launch costs.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace tessera {

// Returns the op, or "fused" and all of its ops, with the types of operands and results on one
// device: "einsum (bf16["batch=4 embed=8"], bf16["embed=8 mlp=16"]) -> (bf16["batch=4 mlp=16"])".
// Collectives have their mesh axes and the number of devices that take part: "all_gather over data
// (4 devices) …". Attributes are left out, since some differ between devices, except `causal` of
// attention, which halves the work. A text of more than 400 bytes ends with a hash of the whole.
std::string launch_type(const Graph& graph, const Node& node);

}  // namespace tessera
