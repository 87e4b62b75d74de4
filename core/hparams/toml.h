// SPDX-License-Identifier: Apache-2.0
// Configuration as TOML. A dump has the origin of each value in comments and reads back to exactly
// the same configuration.
#pragma once

#include <string>
#include <string_view>

#include "core/hparams/tree.h"

namespace tessera {

// `heading` becomes comment lines at the top. Inherited values are written as comments, so that
// they are inherited again on reading.
std::string to_toml(const Tree& tree, std::string_view heading = "");

// Error "<name>:<line>: …" if the text is not TOML. `name` is the provenance of every value.
Tree parse_toml(std::string_view text, std::string_view name);

// One value in TOML syntax, such as {type = "SiLU"} or "a\tb".
Tree parse_toml_value(std::string_view text, const Provenance& provenance);

}  // namespace tessera
