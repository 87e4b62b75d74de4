// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera {
namespace {

CpuFeatures detect() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.amd = __builtin_cpu_is("amd");
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  // The compiler's own test for these two is younger than the compilers we accept.
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    features.avx512_bf16 = features.avx512 && ((a >> 5) & 1u) != 0;
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    features.amx_bf16 = features.avx512_bf16 && ((d >> 22) & 1u) != 0 && ((d >> 24) & 1u) != 0;
  }
#endif
  return features;
}

}  // namespace

std::string CpuFeatures::text() const {
  if (amx_bf16) return "amx";
  if (avx512_bf16) return "avx512_bf16";
  if (avx512) return "avx512";
  return avx2 ? "avx2" : "sse2";
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace tessera
