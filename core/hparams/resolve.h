// SPDX-License-Identifier: Apache-2.0
// What a configuration means once its unset fields have taken the values of enclosing ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/tree.h"

namespace tessera {

// Each unset Field has taken the value of the nearest enclosing struct's Field of the same name and
// type, and values set by an experiment cite at least the template they are in.
Tree resolved(Tree tree);

// Paths of the required fields that are unset.
std::vector<std::string> missing_fields(const Tree& tree);

// Error that lists them all, if there are any.
void check_required(const Tree& tree, std::string_view what);

}  // namespace tessera
