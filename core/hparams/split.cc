// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/split.h"

#include <algorithm>
#include <cstddef>

namespace tessera {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

SplitText split_top_level(std::string_view text, char separator) {
  SplitText split;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (split.open_quote != '\0') {
      if (c == '\\' && split.open_quote == '"') {
        ++i;
      } else if (c == split.open_quote) {
        split.open_quote = '\0';
      }
    } else if (c == '"' || c == '\'') {
      split.open_quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++split.open_brackets;
    } else if (c == ']' || c == '}' || c == ')') {
      --split.open_brackets;
    } else if (c == separator && split.open_brackets == 0) {
      split.parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  const std::string_view last = trimmed(text.substr(std::min(begin, text.size())));
  if (!last.empty() || !split.parts.empty()) split.parts.push_back(last);
  return split;
}

}  // namespace tessera
