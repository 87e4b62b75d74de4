// SPDX-License-Identifier: Apache-2.0
// 128 bits that tell one content from another, as 32 hexadecimal digits. Against mistakes, not
// against forgers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tessera {

inline std::string content_hash(std::string_view content) {
  uint64_t one = 0xcbf29ce484222325u;  // FNV-1a, and a second lane that mixes otherwise.
  uint64_t other = 0x9e3779b97f4a7c15u;
  for (const char byte : content) {
    one = (one ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    other = (other + static_cast<unsigned char>(byte)) * 0xd6e8feb86659fd93u;
    other ^= other >> 32;
  }
  return fmt::format("{:016x}{:016x}", one, other);
}

}  // namespace tessera
