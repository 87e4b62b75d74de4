// SPDX-License-Identifier: Apache-2.0
// A configuration for people: one line a value, and what differs between two.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/tree.h"

namespace tessera {

// "task.train.seed = 1234" and where from, aligned; inherited values are filled in.
std::string describe(const Tree& tree);

// "path: old -> new" for each value that differs, "unset" where one has none. Empty: the same.
std::vector<std::string> diff(const Tree& before, const Tree& after);

}  // namespace tessera
