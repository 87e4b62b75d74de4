// SPDX-License-Identifier: Apache-2.0
// The result of a fusion pass as names of ops.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {

// The ops of a graph and of its loops in order; a fused node is followed by those of its body:
// "fused_product(einsum cast)".
inline std::vector<std::string> fused_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.bodies.empty()) {
      names.emplace_back(node.op->name);
      continue;
    }
    const std::vector<std::string> inner = fused_names(*node.bodies[0]);
    if (is_repeat(node)) {
      names.insert(names.end(), inner.begin(), inner.end());
    } else {
      names.push_back(fmt::format("{}({})", node.op->name, fmt::join(inner, " ")));
    }
  }
  return names;
}

}  // namespace tessera
