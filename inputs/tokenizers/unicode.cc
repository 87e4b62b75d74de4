// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/unicode.h"

#include <utf8proc.h>

#include <array>
#include <vector>

namespace tessera {
namespace {

constexpr int32_t kBeyond = 0x144;  // Exclusive upper bound of the characters.

// Printable Latin-1 characters represent themselves; the other 68 bytes map to U+0100 and up.
constexpr bool stands_for_itself(int32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
         (byte >= 0xae && byte <= 0xff);
}

constexpr std::array<int32_t, 256> make_characters() {
  std::array<int32_t, 256> characters{};
  int32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte)
    characters[static_cast<size_t>(byte)] = stands_for_itself(byte) ? byte : next++;
  return characters;
}

constexpr std::array<int32_t, 256> kCharacters = make_characters();

constexpr std::array<int32_t, kBeyond> make_bytes() {
  std::array<int32_t, kBeyond> bytes{};
  for (int32_t& byte : bytes) byte = -1;
  for (int32_t byte = 0; byte < 256; ++byte)
    bytes[static_cast<size_t>(kCharacters[static_cast<size_t>(byte)])] = byte;
  return bytes;
}

constexpr std::array<int32_t, kBeyond> kBytes = make_bytes();

}  // namespace

size_t valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = character_at(text, at);
    if (!character.is_valid) break;
    at += static_cast<size_t>(character.length);
  }
  return at;
}

void append_utf8(int32_t code, std::string* text) {
  std::array<uint8_t, 4> bytes;
  const auto size = utf8proc_encode_char(code, bytes.data());
  text->append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

std::optional<std::string> byte_level_decode(std::string_view characters) {
  std::string bytes;
  for (size_t at = 0; at < characters.size();) {
    const Character character = character_at(characters, at);
    const int32_t byte =
        character.code < kBeyond ? kBytes[static_cast<size_t>(character.code)] : -1;
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += static_cast<size_t>(character.length);
  }
  return bytes;
}

std::string byte_level_encode(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes)
    append_utf8(kCharacters[static_cast<unsigned char>(byte)], &characters);
  return characters;
}

namespace {

constexpr int32_t kCodes = 0x110000;

uint8_t class_of_category(int category) {
  using namespace unicode_class;
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper | kWord;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower | kWord;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kUpper | kLower | kWord;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kUpper | kLower | kWord;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:  // Alphabetic, hence \w.
      return kNumber | kWord;
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
      return kWord | kPunctuation;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    default:
      return 0;
  }
}

// Symbols with the Alphabetic property: circled and squared letters.
bool is_lettered_symbol(int32_t code) {
  return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

bool is_ascii_symbol(int32_t code) {
  return (code >= 0x21 && code <= 0x2f) || (code >= 0x3a && code <= 0x40) ||
         (code >= 0x5b && code <= 0x60) || (code >= 0x7b && code <= 0x7e);
}

std::vector<uint8_t> make_table() {
  std::vector<uint8_t> table(kCodes);
  for (int32_t code = 0; code < kCodes; ++code) {
    uint8_t kind = class_of_category(utf8proc_category(code));
    if (is_white_space(code)) kind = unicode_class::kSpace;
    if (code == '\r' || code == '\n') kind |= unicode_class::kLineEnd;
    if (is_lettered_symbol(code)) kind |= unicode_class::kWord;
    if (is_ascii_symbol(code)) kind |= unicode_class::kPunctuation;
    table[code] = kind;
  }
  return table;
}

}  // namespace

bool is_white_space(int32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

UnicodeClasses::UnicodeClasses() {
  static const std::vector<uint8_t> table = make_table();
  table_ = table.data();
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace tessera
