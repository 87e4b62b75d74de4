// SPDX-License-Identifier: Apache-2.0
// AMX's tile instructions (Intel, "Architecture Instruction Set Extensions", chapter on AMX), as
// assembly: intrinsics exist only in code that is compiled for AMX as a whole.
#include "core/backend/cpu/gemm/matrix_tiles.h"

#include "core/base/error.h"

namespace tessera {
namespace {

#if defined(__x86_64__)
struct AmxTiles {
  // Palette 1: each of the eight tiles has 16 rows of 64 bytes.
  static void configure() {
    struct alignas(64) Configuration {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static_assert(sizeof(Configuration) == 64);
    static const Configuration configuration;
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
  }
  static void release() { __asm__ volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const float* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride), "i"(kTile)
                     : "memory");
  }
  // Adds the product of tiles A and B to the sums.
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

}  // namespace

const ProductKernels& bf16_tile_kernels() {
  static const ProductKernels kernels = [] {
    ProductKernels made = tile_packing();
#if defined(__x86_64__)
    made.multiply = multiply_by_tiles<AmxTiles>;
#endif
    return made;
  }();
  return kernels;
}

}  // namespace tessera
