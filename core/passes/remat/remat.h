// SPDX-License-Identifier: Apache-2.0
// Which forward values the backward pass keeps, and which it recomputes (Chen et al., 2016).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Applies within RematScopes and, per iteration, to the bodies of `repeat`. Values outside are
// kept, and so is what enters a region or an iteration.
struct RematPolicy {
  enum class Kind {
    kSaveEverything,
    kSaveNothing,
    kSaveNamed,                 // What save_for_backward marks with one of `names`.
    kSaveContractions,          // Results of einsums…
    kSaveUnbatchedContractions  // … that have no batch axis.
  };
  Kind kind = Kind::kSaveEverything;
  std::vector<std::string> names;  // Of kSaveNamed.
  std::string text() const;        // What parse_remat_policy reads.
  bool operator==(const RematPolicy&) const = default;
};

// "save_everything", "save_nothing", "save_dot_only", "save_context_and_out_proj", … (Pax's names,
// lower case) or a list of names "query_proj,ffn1". Error with the nearest policy where a word
// begins like one.
RematPolicy parse_remat_policy(std::string_view text);

struct SavedValue {
  std::string name;  // As marked, else the op's.
  std::string path;
  Type type;  // Global; of all iterations of a loop together.
};

// The graph with recomputation inserted before first backward use. Under every policy, elementwise
// results that are cheaper to compute again than to read back are (recompute_candidates.h).
// `saved`, if given, receives what is kept across from forward to backward.
Graph rematerialize(const Graph& graph, const RematPolicy& policy,
                    std::vector<SavedValue>* saved = nullptr);

}  // namespace tessera
