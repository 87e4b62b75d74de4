// SPDX-License-Identifier: Apache-2.0
// What a remat policy says of the values of one graph.
#pragma once

#include <map>
#include <string>

#include "core/graph/graph.h"
#include "core/passes/remat/remat.h"

namespace tessera {

class RematDecision {
 public:
  RematDecision(const Graph& graph, const RematPolicy& policy);

  // Whether the policy keeps `value`, the result of a node. What only looks at another value (a
  // view, a mark) is never kept itself.
  bool operator()(ValueId value) const;

  // The name under which `value` was marked to be saved, or "".
  std::string mark(ValueId value) const;

 private:
  bool keeps_loop_result(const Node& loop, int32_t result) const;

  const Graph& graph_;
  const RematPolicy& policy_;
  std::map<ValueId, std::string> marks_;  // By the value that was marked.
};

// Whether a node's result is its operand in another guise.
bool is_alias(const Node& node);

}  // namespace tessera
