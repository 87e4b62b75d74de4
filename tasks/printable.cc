// SPDX-License-Identifier: Apache-2.0
#include "tasks/printable.h"

#include <cstdint>

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none. Overlong forms,
// surrogates and what lies beyond U+10FFFF are none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return 0;
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[bytes] || surrogate || code > 0x10ffff ? 0 : bytes;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1)
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;  // U+0080 to U+009F.
}

// Whether control characters count as what cannot be shown.
enum class Controls { kKept, kReplaced };

std::string with_replacements(std::string_view text, Controls controls) {
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes);
    const bool replaced = bytes == 0 || (controls == Controls::kReplaced && is_control(character));
    shown += replaced ? kReplacement : character;
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text) {
  return with_replacements(text, Controls::kReplaced);
}

std::string valid_utf8(std::string_view text) { return with_replacements(text, Controls::kKept); }

}  // namespace tessera
