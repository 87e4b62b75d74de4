// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that are split between devices: ring attention (Liu, Zaharia and Abbeel,
// 2023, arXiv 2310.01889). Keys and values are passed around the devices in k - 1 steps. In each
// step a device attends to the keys that it holds, and partial results are merged by the logarithms
// of their softmax denominators.
//
// Causal attention would leave the devices with early tokens idle. So each sequence is cut into 2k
// chunks, and during attention device d has chunks d and 2k - 1 - d (zig-zag order, as in
// Megatron-LM and Llama 3, arXiv 2407.21783). Then each step is the same work for all devices: two
// products of one chunk of queries with one chunk of keys. In a window a device needs few keys:
// halo_attention().
#pragma once

#include <span>
#include <vector>

#include "core/compile/spmd/ring.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Returns whether the node is attention, or its gradient, of sequences split over more than one
// device.
bool is_ring_attention(const Graph& graph, const Node& node, const Mesh& mesh);

// Returns the program of one device for this node: a graph with the node's operands and results, in
// local types. It is equal for all devices, up to the attributes that lowering adds.
Graph ring_attention(const Graph& graph, const Node& node, const Mesh& mesh);

// Traces one device's part of the node, attention or its gradient, of which a query sees nearby
// keys (sees_nearby_keys). The operands are the node's, in local types.
std::vector<Tensor> halo_attention(const Node& node, const Ring& ring,
                                   std::span<const Tensor> operands);

}  // namespace tessera
