// SPDX-License-Identifier: Apache-2.0
// Attention in a window over sequences that are split between devices. A device receives the keys
// and values that its queries see of the devices around it (a halo), and attends once. Their
// gradients are sent back. In contrast to a ring (ring_attention.h), keys that no query of a device
// sees are not sent to it, and its queries stay where they are: all devices have the same work.
#pragma once

#include <span>
#include <vector>

#include "core/compile/spmd/ring.h"
#include "core/graph/graph.h"

namespace tessera {

// Traces one device's part of the node, attention or its gradient, of which a query sees nearby
// keys (sees_nearby_keys). The operands are the node's, in local types.
std::vector<Tensor> halo_attention(const Node& node, const Ring& ring,
                                   std::span<const Tensor> operands);

}  // namespace tessera
