// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden_noise.h"

namespace tessera {

std::vector<double> golden_noise(std::string_view name, int64_t count) {
  uint32_t hash = 0x811C9DC5u;  // FNV-1a.
  for (const char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x01000193u;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + hash;
    for (int round = 0; round < 2; ++round) x = (x ^ (x >> 16)) * 0x45D9F3Bu;
    x ^= x >> 16;
    values.push_back(static_cast<double>(x >> 16) / 32768.0 - 1.0);
  }
  return values;
}

}  // namespace tessera
