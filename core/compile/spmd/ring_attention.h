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
// halo_attention.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The devices that split the sequences of an attention node, in their order.
class Ring {
 public:
  using Routes = std::vector<int64_t>;  // For each device: the device that it sends to.

  Ring(const Graph& graph, const Node& attention, const Mesh& mesh);

  int64_t size() const { return size_; }
  // This device's number among them, a scalar.
  const Tensor& number() const { return number_; }

  // What the device sends here whose route leads here. The gradient sends keys again: without the
  // attribute `gradient` its permutes would be merged with equal ones of the forward pass, and
  // every device would store the keys of all devices.
  Tensor sent(const Tensor& x, const Routes& routes) const;
  // Each device sends to the one so many places further on; the last ones to the first ones.
  Tensor sent_on(const Tensor& x, int64_t places) const;

 private:
  std::vector<std::string> mesh_axes_;
  int64_t size_;
  bool is_gradient_;
  Tensor number_;
};

// Traces one device's part of the node, attention or its gradient, of which a query sees nearby
// keys (sees_nearby_keys). The operands are the node's, in local types.
std::vector<Tensor> halo_attention(const Node& node, const Ring& ring,
                                   std::span<const Tensor> operands);

// Returns whether the node is attention, or its gradient, of sequences split over more than one
// device.
bool is_ring_attention(const Graph& graph, const Node& node, const Mesh& mesh);

// Returns the program of one device for this node: a graph with the node's operands and results, in
// local types. It is equal for all devices, up to the attributes that lowering adds.
Graph ring_attention(const Graph& graph, const Node& node, const Mesh& mesh);

}  // namespace tessera
