// SPDX-License-Identifier: Apache-2.0
// Which forward values the backward pass keeps, and which it recomputes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Applies within RematScopes and, per iteration, to the bodies of `repeat`. Values outside are kept.
struct RematPolicy {
  enum class Kind { kSaveEverything, kSaveNothing, kSaveNamed, kSaveContractions } kind =
      Kind::kSaveEverything;
  std::vector<std::string> names;  // Of kSaveNamed.
  std::string text() const;
};

// "save_everything", "save_nothing", "save_dot_only", "save_context_and_out_proj", … (Pax's names,
// lower case) or a list "query_proj,ffn1". Error with the nearest name.
RematPolicy parse_remat_policy(std::string_view text);

struct SavedValue {
  std::string name;  // As marked, else the op's.
  std::string path;
  int64_t bytes = 0;  // Of all iterations.
};

// The graph with recomputation inserted before first backward use. `saved`, if given, receives
// what is kept across from forward to backward.
Graph rematerialize(const Graph& graph, const RematPolicy& policy,
                    std::vector<SavedValue>* saved = nullptr);

}  // namespace tessera
