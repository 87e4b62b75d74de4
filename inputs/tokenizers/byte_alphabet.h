// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet of bytes: files write each byte of a token as a printable character, so that a
// space is "Ġ" and a line end "Ċ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// "Ġthe" is " the"; nullopt if a character is none of the 256.
std::optional<std::string> bytes_of_alphabet(std::string_view characters);
// " the" is "Ġthe".
std::string alphabet_of_bytes(std::string_view bytes);

}  // namespace tessera
