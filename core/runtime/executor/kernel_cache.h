// SPDX-License-Identifier: Apache-2.0
// Prepared kernels of a device, one for all nodes that are alike: the layers of an unrolled stack
// share theirs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "core/graph/graph.h"

namespace tessera {

class KernelCache {
 public:
  explicit KernelCache(Device& device) : device_(device) {}

  // Valid as long as the cache. The node's graph is only read during the call, but a node of the
  // same address must not be replaced by another.
  Kernel& get(const Graph& graph, const Node& node);

 private:
  Device& device_;
  std::map<const Node*, Kernel*> by_node_;
  std::map<std::string, std::unique_ptr<Kernel>> by_signature_;
};

}  // namespace tessera
