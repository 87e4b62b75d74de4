// SPDX-License-Identifier: Apache-2.0
// A configuration as text: TOML, which has the origin of each value in comments and reads back to
// exactly the same configuration, a listing, and the differences between two configurations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/tree.h"

namespace tessera {

// Writes TOML. `heading` becomes comment lines at the top. Inherited values are written as
// comments, so that they are inherited again on reading.
std::string to_toml(const Tree& tree, std::string_view heading = "");

// Parses TOML; Error "<name>:<line>: …" for other text. `name` is the provenance of every value.
Tree parse_toml(std::string_view text, std::string_view name);

// Parses one value in TOML syntax, such as {type = "SiLU"} or "a\tb".
Tree parse_toml_value(std::string_view text, const Provenance& provenance);

// Returns one line per value, inherited ones included, with its provenance and its facts in FIELDS:
// "task.train.seed = 1234  # default; of initial weights and dropout". Equal layers share their
// lines (fold_layers.h).
std::string describe(const Tree& tree);

// Returns "path: old -> new" for each difference; "absent" for a path that only one of them has.
std::vector<std::string> diff(const Tree& before, const Tree& after);

// Returns the text without spaces, tabs and line ends around it.
std::string_view trimmed(std::string_view text);

struct SplitText {
  std::vector<std::string_view> parts;  // Trimmed; an empty text has none.
  char open_quote = '\0';               // A quote that is not closed.
  int open_brackets = 0;                // Negative: more are closed than opened.
};

// Splits a list that a user types, at separators that are in neither brackets nor quotes.
SplitText split_top_level(std::string_view text, char separator);

}  // namespace tessera
