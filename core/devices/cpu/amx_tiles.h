// SPDX-License-Identifier: Apache-2.0
// The configuration of the tile registers of AMX: eight tiles of 16 rows of 64 bytes (palette 1;
// Intel, "Architecture Instruction Set Extensions", chapter on AMX).
#pragma once

#include <cstdint>

namespace tessera {

#if defined(__x86_64__)
// Sets all tiles to zero. Assembly: the intrinsic _tile_loadconfig of g++ 12 tells the compiler of
// the first 8 bytes only, so the others may never be written, and the processor rejects the
// configuration.
inline void configure_tiles() {
  struct alignas(64) Configuration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(Configuration) == 64);
  static constexpr Configuration kConfiguration;
  __asm__ volatile("ldtilecfg %0" : : "m"(kConfiguration));
}
#endif

}  // namespace tessera
