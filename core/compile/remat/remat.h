// SPDX-License-Identifier: Apache-2.0
// Rematerialisation: forward values that the backward pass recomputes instead of keeping them in
// memory (Chen et al., "Training deep nets with sublinear memory cost", 2016), and the policies
// that choose them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Applies within RematScopes and, per iteration, to loop bodies. Values outside are saved, and so
// are the inputs of a region or iteration.
struct RematPolicy {
  enum class Kind {
    kSaveEverything,
    kSaveNothing,
    kSaveNamed,                 // Values marked by save_for_backward with one of `names`.
    kSaveContractions,          // Results of einsums.
    kSaveUnbatchedContractions  // Results of einsums without a batch axis.
  };
  Kind kind = Kind::kSaveEverything;
  std::vector<std::string> names;  // Saved names, for kSaveNamed.
  std::string text() const;        // Input of parse_remat_policy.
  bool operator==(const RematPolicy&) const = default;
};

// Parses a policy of Pax in lower case ("save_everything", "save_nothing", "save_dot_only",
// "save_context_and_out_proj", …) or a list of names "query_proj,ffn1". Error with the nearest
// policy for an unknown word that begins with "save_".
RematPolicy parse_remat_policy(std::string_view text);

// Checks names: Error with the nearest name for a name of a list that save_for_backward marks
// nowhere in the graph. The names of Pax's policies need not exist: they are those of all its
// layers.
void check_remat_names(const RematPolicy& policy, const Graph& traced);

// The decision of a policy for each value of a graph.
class RematDecision {
 public:
  RematDecision(const Graph& graph, const RematPolicy& policy);

  // Returns whether the policy saves `value`, the result of a node. Aliases of other values are
  // never saved.
  bool operator()(ValueId value) const;

  // Returns the name under which `value` was marked to be saved, or "".
  std::string mark(ValueId value) const;

 private:
  bool saves_loop_result(const Node& loop, size_t result) const;

  const Graph& graph_;
  const RematPolicy& policy_;
  std::map<ValueId, std::string> marks_;  // By marked value.
};

// Returns whether the result of a node is an alias of its operand.
bool is_alias(const Node& node);

struct SavedValue {
  std::string name;  // The name of the mark, else of the op.
  std::string path;
  Type type;  // Global type; for all iterations of a loop.
};

// Returns the graph with recomputation inserted before the first use in the backward pass. Under
// every policy the recompute_candidates() (loop_body.h) are recomputed. `saved`, if not null,
// receives the values kept from the forward to the backward pass.
Graph rematerialize(Graph graph, const RematPolicy& policy,
                    std::vector<SavedValue>* saved = nullptr);

}  // namespace tessera
