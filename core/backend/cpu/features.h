// SPDX-License-Identifier: Apache-2.0
// What the processor can do, as far as the choice between libraries depends on it. Our own vector
// code is dispatched by Highway and does not ask here.
#pragma once

#include <string>

namespace tessera {

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
  bool amd = false;          // Made by AMD.
  std::string text() const;  // The best of them: "amx", "avx512_bf16", "avx512", "avx2", "sse2".
};

const CpuFeatures& cpu_features();

}  // namespace tessera
