// SPDX-License-Identifier: Apache-2.0
// Values by dotted path: "task.model.lm_tpl.num_layers", "rules[0].axis".
#pragma once

#include <string>
#include <string_view>

#include "core/hparams/convert.h"
#include "core/hparams/tree.h"

namespace tessera {

// The node at the path. Error with the nearest path for a name that is not there.
const Tree& at_path(const Tree& tree, std::string_view path);

// Whether the first name of the path is one of the table's.
bool has_root(const Tree& tree, std::string_view path);

// Puts `value` at the path; what it means is decided by the field when the tree is read back.
void put_at_path(Tree& tree, std::string_view path, Tree value);

// Sets one value from text, typed and checked: `--set path=text`.
template <typename P>
void set_path(P& p, std::string_view path, std::string_view text) {
  Tree tree = to_tree(p);
  const std::string given = std::string(path) + "=" + std::string(text);
  put_at_path(tree, path, Tree::typed(text, {Origin::kCommandLine, {}, given}));
  from_tree(tree, p);
}

// Says of a plain member, which cannot remember it, that it came from `--set path=value`.
void note_command_line(Tree& tree, std::string_view given);

// The shortest path that ends in this name (or path cut short), or "": for "did you mean".
std::string path_ending_in(const Tree& tree, std::string_view name);

}  // namespace tessera
