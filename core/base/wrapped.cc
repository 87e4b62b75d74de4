// SPDX-License-Identifier: Apache-2.0
#include "core/base/wrapped.h"

#include <algorithm>

namespace tessera {

std::string wrapped(const std::string& text, size_t indent) {
  std::string result(indent, ' ');
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > kTextColumns) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    begin = end + 1;
  }
  return result + "\n";
}

}  // namespace tessera
