// SPDX-License-Identifier: Apache-2.0
// Configuration as TOML: a dump that says in comments where each value came from, and that reads
// back to exactly the same configuration.
#pragma once

#include <string>
#include <string_view>

#include "core/hparams/tree.h"

namespace tessera {

// `heading` becomes comment lines at the top. Inherited values are comments: on reading back they
// are inherited again.
std::string to_toml(const Tree& tree, std::string_view heading = "");

// Error "<name>:<line>: …" for what is not TOML. `name` is also the provenance of every value.
Tree parse_toml(std::string_view text, std::string_view name);

// One value in TOML's notation, such as {type = "SiLU"} or "a\tb".
Tree parse_toml_value(std::string_view text, const Provenance& provenance);

}  // namespace tessera
