// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/byte_alphabet.h"

#include <array>

#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

constexpr int32_t kBeyond = 0x144;  // The characters are below it.

// Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100 on.
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

std::optional<std::string> bytes_of_alphabet(std::string_view characters) {
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

std::string alphabet_of_bytes(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes)
    append_utf8(kCharacters[static_cast<unsigned char>(byte)], &characters);
  return characters;
}

}  // namespace tessera
