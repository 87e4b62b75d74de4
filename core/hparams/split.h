// SPDX-License-Identifier: Apache-2.0
// Splits lists in text that a user types: parts between separators that are in neither brackets nor
// quotes.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

// Returns the text without spaces, tabs and line ends around it.
std::string_view trimmed(std::string_view text);

struct SplitText {
  std::vector<std::string_view> parts;  // Trimmed; an empty text has none.
  char open_quote = '\0';               // A quote that is not closed.
  int open_brackets = 0;                // Negative: more are closed than opened.
};

SplitText split_top_level(std::string_view text, char separator);

}  // namespace tessera
