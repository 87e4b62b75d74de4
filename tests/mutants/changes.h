// SPDX-License-Identifier: Apache-2.0
// The changes that make mutants: each deletes, doubles, moves or retypes a reduction, gather,
// exchange, slice, scale or mask, or swaps two mesh axes. Changes that are equal up to rounding by
// algebra alone, such as a sum moved past a linear op, are not among them.
#pragma once

#include <string>
#include <vector>

#include "tests/mutants/edit.h"

namespace tessera {

// Returns all changes at a site; none for most nodes.
std::vector<Change> changes_at(const Site& site);

// Parts of changes_at(), by what is at the site.
void add_changes_of_collective(const Site& site, std::vector<Change>& changes);
void add_changes_of_slice(const Site& site, std::vector<Change>& changes);
void add_changes_of_scale(const Site& site, std::vector<Change>& changes);
void add_changes_of_mask(const Site& site, std::vector<Change>& changes);
void add_changes_of_pipeline(const Site& site, std::vector<Change>& changes);

// Common changes. `what` is "reduction", "gather" and so on.

// The result is the operand.
Change deleted(const std::string& what);
// The op is applied to its result.
Change doubled(const std::string& what);
// The op has other attributes; the declared types stay.
Change retyped(const Site& site, const std::string& kind, const std::string& how,
               Attributes attributes);
// The result is that of `make`.
Change replaced(const std::string& kind, const std::string& how,
                std::function<ValueId(Edit& edit)> make);
// The op is applied after its first reader, to another operand of it, or before its producer; none
// where that is the same by algebra.
void add_moves(const Site& site, const std::string& what, std::vector<Change>& changes);
// Two mesh axes of equal size are exchanged.
void add_swaps(const Site& site, std::vector<Change>& changes);

// Sets the attributes of a collective, slice, pad or mask for these mesh axes.
void set_mesh_axes(const Site& site, const std::vector<std::string>& mesh_axes,
                   Attributes& attributes);
// Returns the mesh axes of more than one device except `stage`, whose devices run other programs.
std::vector<std::string> wide_axes(const Mesh& mesh);

}  // namespace tessera
