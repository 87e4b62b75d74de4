// SPDX-License-Identifier: Apache-2.0
// Tree nodes by dotted path: "task.model.lm_tpl.num_layers", "rules[0].axis".
#pragma once

#include <string>
#include <string_view>

#include "core/hparams/convert.h"
#include "core/hparams/tree.h"

namespace tessera {

// The node at the path. Error with the nearest path if a name is unknown.
const Tree& at_path(const Tree& tree, std::string_view path);

// Whether the table has the first name of the path.
bool has_root(const Tree& tree, std::string_view path);

// Sets the node at the path. Text is interpreted by the field when the tree is read.
void put_at_path(Tree& tree, std::string_view path, Tree value);

// Sets one value from text, with the type and checks of its field: `--set path=text`.
template <typename P>
void set_path(P& p, std::string_view path, std::string_view text) {
  Tree tree = to_tree(p);
  const std::string given = std::string(path) + "=" + std::string(text);
  put_at_path(tree, path, Tree::typed(text, {Origin::kCommandLine, {}, given}));
  from_tree(tree, p);
}

// Records that the value at "path" was set by `--set path=value`, for members that are not a Field
// and do not remember it.
void note_command_line(Tree& tree, std::string_view given);

// The shortest path that ends with this name or partial path, or "". For "did you mean".
std::string path_ending_in(const Tree& tree, std::string_view name);

}  // namespace tessera
