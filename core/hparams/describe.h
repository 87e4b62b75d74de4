// SPDX-License-Identifier: Apache-2.0
// Text for people: the values of a configuration, and the differences between two.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/tree.h"

namespace tessera {

// One line per value, inherited ones included: "task.train.seed = 1234  # <where it was set>".
std::string describe(const Tree& tree);

// "path: old -> new" for each difference; "absent" for a path that only one of them has.
std::vector<std::string> diff(const Tree& before, const Tree& after);

}  // namespace tessera
