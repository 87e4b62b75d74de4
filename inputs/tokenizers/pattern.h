// SPDX-License-Identifier: Apache-2.0
// A regular expression of a tokenizer file, run by Oniguruma, as in Hugging Face's tokenizers
// library. Patterns and texts may be hostile: steps, memory and time are bounded.
// Bytes that are not UTF-8 match as U+FFFD.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace tessera {

// Finds the matches of a pattern or of a literal text, in order.
struct Matcher {
  std::string description;  // Equal for equal effect; for fingerprints.
  std::function<void(std::string_view text,
                     const std::function<void(size_t begin, size_t end)>& take)>
      find;
};
// Matches an expression in UTF-8; Error, prefixed with `where`, if it is invalid. `find` visits
// empty matches too, except at the end of another. TextLimitError if a match takes too many steps
// or too much memory. Thread-safe.
Matcher pattern_matcher(const std::string& expression, const std::string& where);
// Matches a literal; Error if it is empty.
Matcher literal_matcher(const Json& literal);
// Parses the member "pattern" of a step of a tokenizer.json: {"Regex": …} or {"String": …}.
Matcher make_matcher(const Json& pattern);

}  // namespace tessera
