// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/unicode.h"

#include <utf8proc.h>

#include <array>
#include <vector>

#include "inputs/tokenizers/unicode_properties.h"

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

constexpr int32_t kCodes = 0x110000;

std::vector<CharacterClasses> make_table() {
  using namespace unicode_class;
  std::vector<CharacterClasses> table(kCodes);
  const auto changes = [&](CharacterClasses classes) {
    return [&table, classes](int32_t first, int32_t last) {
      for (int32_t code = first; code <= last; ++code) table[static_cast<size_t>(code)] ^= classes;
    };
  };
  const auto add = [&](std::string_view property, CharacterClasses classes) {
    for_each_range(property, changes(classes));
  };
  add("Lu", kLetter | kUpper);
  add("Lt", kLetter | kUpper);
  add("Ll", kLetter | kLower);
  add("Lm", kLetter | kUpper | kLower);
  add("Lo", kLetter | kUpper | kLower);
  add("M", kMark | kUpper | kLower);
  add("N", kNumber | kStepDigit);
  for_each_other_digit(changes(kStepDigit));
  add("P", kPunctuation | kStepPunctuation);
  for_each_other_punctuation(changes(kStepPunctuation));
  for (const char c : std::string_view("$+<=>^`|~"))
    table[static_cast<size_t>(c)] |= kStepPunctuation;
  add("S", kSymbol);
  add("White_Space", kSpace);
  for (const char* property : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"})
    for_each_range(property, [&](int32_t first, int32_t last) {
      for (int32_t code = first; code <= last; ++code) table[static_cast<size_t>(code)] |= kWord;
    });
  for (const char c : {'\r', '\n'}) table[static_cast<size_t>(c)] |= kLineEnd;
  return table;
}

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

bool is_white_space(int32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

UnicodeClasses::UnicodeClasses() {
  static const std::vector<CharacterClasses> table = make_table();
  table_ = table.data();
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace tessera
