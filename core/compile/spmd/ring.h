// SPDX-License-Identifier: Apache-2.0
// The devices that split the sequences of an attention node, in their order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

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

}  // namespace tessera
