// SPDX-License-Identifier: Apache-2.0
#include "core/base/shell_command.h"

#include <cstdint>

#include <fmt/format.h>

#include "core/base/printable.h"

namespace tessera {
namespace {

// Uses octal escapes, because a hexadecimal one takes the digits that follow.
std::string ansi_quoted(const std::string& word) {
  std::string text = "$'";
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\{:03o}", byte);
    } else {
      if (c == '\'' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text + "'";
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const bool is_flag =
      equals < word.size() - 1 && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-") == equals;
  if (is_flag) return word.substr(0, equals + 1) + shell_quoted(word.substr(equals + 1));
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%[]";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool is_shown = printable(word) == word && word.find_first_of("\n\t") == std::string::npos;
  if (!is_shown) return ansi_quoted(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_quoted(word);
  }
  return text;
}

}  // namespace tessera
