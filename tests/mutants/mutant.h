// SPDX-License-Identifier: Apache-2.0
// A mutant: one change (changes.h) of the lowered programs of a composition, alike on all devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mutants/lowered_step.h"

namespace tessera {

struct Mutant {
  int64_t stage = 0;         // The stage whose program has the node; 0 without stages.
  std::vector<size_t> path;  // Node, body, node, body, …, node.
  std::string kind, how;     // What the change is called.
  std::string op, layer;     // The node's op, and the layer path that it comes from.
  Phase phase = Phase::kForward;
  std::string text() const;  // "0:41/0/12|delete reduction|own part"
};

// Returns all mutants, in the order of the nodes, except those that change nothing.
std::vector<Mutant> all_mutants(const LoweredStep& step);
// Returns the mutant with this text(); Error if there is none.
Mutant parse_mutant(const LoweredStep& step, std::string_view text);

// Returns the programs of all devices with the change. Error if a type rule refuses it.
std::vector<Graph> mutated(const LoweredStep& step, const Mutant& mutant);

}  // namespace tessera
