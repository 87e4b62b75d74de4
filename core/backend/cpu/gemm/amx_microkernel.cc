// SPDX-License-Identifier: Apache-2.0
// The tile instructions of AMX (Intel, "Architecture Instruction Set Extensions", chapter on AMX).
// Assembly, because the intrinsics exist only in functions compiled for AMX.
#include "core/backend/cpu/gemm/amx_microkernel.h"

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
  // sums += A·B, of pairs of bf16.
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

}  // namespace

const GemmKernels& amx_kernels() {
  static const GemmKernels kernels = [] {
    GemmKernels made = amx_packing();
#if defined(__x86_64__)
    made.multiply = amx_multiply<AmxTiles>;
#endif
    return made;
  }();
  return kernels;
}

}  // namespace tessera
