// SPDX-License-Identifier: Apache-2.0
// Attributes of lowered nodes (core/passes/spmd/lower.h): first those that hold for every device,
// then the numbers of one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/spmd/reshard_plan.h"

namespace tessera {

// The attributes of a node of `graph` with local sizes and without splits. An op whose result
// depends on where a shard lies, and whose anchor (core/ops/collective.h) is split, gets the
// anchor's type as `anchor`.
Attributes local_attributes(const Graph& graph, const Node& node, const Mesh& mesh);

// Of the node that does a step from `layout`.
Attributes step_attributes(const ReshardStep& step, const Type& layout, const Mesh& mesh);

class DeviceAttributes {
 public:
  DeviceAttributes(const Mesh& mesh, int64_t device) : mesh_(mesh), device_(device) {}

  // Adds what `node` of `graph` needs to know about its device: group and index, begin and end,
  // before and after, keep, from and to, origin and extent.
  void fill(const Graph& graph, Node& node);

 private:
  const std::vector<int64_t>& group(const std::vector<std::string>& mesh_axes);
  void fill_permute(Attributes& attributes);

  const Mesh& mesh_;
  int64_t device_;
  std::map<std::vector<std::string>, std::vector<int64_t>> groups_;
};

}  // namespace tessera
