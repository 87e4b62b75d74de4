// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Returns the code point of a valid UTF-8 character.
uint32_t code_of(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  uint32_t code = lead & (0x7fu >> character.size());
  for (size_t i = 1; i < character.size(); ++i)
    code = code << 6 | (static_cast<uint8_t>(character[i]) & 0x3fu);
  return code;
}

// Returns the size of the UTF-8 character at the start of `text`; 0 if it is invalid: overlong, a
// surrogate or beyond U+10FFFF.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const uint32_t code = code_of(text.substr(0, bytes));
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[bytes] || surrogate || code > 0x10ffff ? 0 : bytes;
}

bool is_within(uint32_t code, uint32_t first, uint32_t last) {
  return code >= first && code <= last;
}

// Returns whether a terminal interprets the character: control characters, direction marks and
// overrides, line separators, and characters without width, among them tags (U+E0000 to U+E007F).
bool acts_on_terminal(uint32_t code) {
  if (code == '\n' || code == '\t') return false;
  return code < 0x20 || is_within(code, 0x7f, 0x9f) || code == 0xad || code == 0x61c ||
         code == 0x180e || is_within(code, 0x200b, 0x200f) || is_within(code, 0x2028, 0x202e) ||
         is_within(code, 0x2060, 0x206f) || code == 0xfeff || is_within(code, 0xfff9, 0xfffb) ||
         is_within(code, 0xe0000, 0xe007f);
}

std::string escaped_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return text;
}

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

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0) {
      shown += escaped_bytes(character);
    } else if (const uint32_t code = code_of(character); !acts_on_terminal(code)) {
      shown += character;
    } else {
      shown += bytes == 1        ? escaped_bytes(character)
               : code <= 0xffffu ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string shortened(std::string_view text) {
  constexpr size_t kMostCharacters = 200;
  size_t end = 0;
  for (size_t i = 0; i < kMostCharacters && end < text.size(); ++i)
    end += std::max<size_t>(character_bytes(text.substr(end)), 1);
  if (end == text.size()) return std::string(text);
  return fmt::format("{}… ({} bytes)", text.substr(0, end), text.size());
}

std::string valid_utf8(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    shown += bytes == 0 ? kReplacement : text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return shown;
}

std::string markup_text(std::string_view text) {
  std::string markup;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&':
        markup += "&amp;";
        break;
      case '<':
        markup += "&lt;";
        break;
      case '>':
        markup += "&gt;";
        break;
      case '"':
        markup += "&quot;";
        break;
      default:
        markup += c;
    }
  }
  return markup;
}

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
