// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels choose between. Each level includes those before it. The level
// in force is the highest one of this processor, or a lower one that the environment variable
// TESSERA_CPU_LEVEL names (portable, avx2, avx512, avx512_bf16 or amx).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::string_view kLevelVariable = "TESSERA_CPU_LEVEL";

enum class CpuLevel {
  kPortable,    // The compiler's baseline: SSE2 on x86-64.
  kAvx2,        // AVX2 and FMA.
  kAvx512,      // AVX-512 F, BW, DQ, VL and CD.
  kAvx512Bf16,  // vdpbf16ps: dot products of bf16 pairs.
  kAmx,         // AMX tiles of bf16, where the operating system grants them.
};

std::string_view level_name(CpuLevel level);

// The levels of this processor, lowest first; kPortable is always one.
const std::vector<CpuLevel>& machine_levels();

// The level that TESSERA_CPU_LEVEL names; none if it is unset or empty. Error for an unknown name.
std::optional<CpuLevel> requested_level();

// What the processor calls itself, such as "AMD EPYC 9R14 96-Core Processor"; empty if it does not.
std::string processor_name();

// The level in force, fixed when it is first asked for; vector code dispatched by Highway is
// restricted to it. Error if TESSERA_CPU_LEVEL names no level, or one that this processor lacks.
CpuLevel cpu_level();

}  // namespace tessera
