// SPDX-License-Identifier: Apache-2.0
// The capabilities of the processor: the instruction set levels that kernels are compiled for, and
// its peak FLOP/s. Each level includes those before it. The level in use is the highest of this
// processor, or a lower one from the environment variable TESSERA_CPU_LEVEL (portable, avx2,
// avx512, avx512_bf16 or amx).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/devices/cpu/thread_pool.h"

namespace tessera {

inline constexpr std::string_view kLevelVariable = "TESSERA_CPU_LEVEL";

enum class CpuLevel {
  kPortable,    // The compiler's baseline: SSE2 on x86-64.
  kAvx2,        // AVX2 and FMA.
  kAvx512,      // AVX-512 F, BW, DQ, VL and CD.
  kAvx512Bf16,  // vdpbf16ps: dot products of bf16 pairs.
  kAmx,         // AMX tiles of bf16, if the operating system permits them.
};

std::string_view level_name(CpuLevel level);

// Returns the levels of this processor, lowest first, beginning with kPortable.
const std::vector<CpuLevel>& machine_levels();

// Returns the level of TESSERA_CPU_LEVEL; nullopt if unset or empty. Error for an unknown name.
std::optional<CpuLevel> requested_level();

// Returns the processor's brand string, such as "AMD EPYC 9R14 96-Core Processor"; may be empty.
std::string processor_name();

// Returns the level in use, fixed by the first call, which also restricts the dispatch of Highway
// to it. Error if TESSERA_CPU_LEVEL is not a level of this processor.
CpuLevel cpu_level();

// Returns the peak FLOP/s of the whole pool at cpu_level(), the denominator of MFU, measured by a
// loop on registers on all threads at once: fused multiply-adds of the widest f32 vectors; for bf16
// vdpbf16ps or AMX if the level has them, else f32, to which bf16 is then widened. No matrix
// product is faster. A pool has at most the rate of as many threads as processors. The measurement
// takes a few milliseconds. A call more than a second later measures again and keeps the maximum,
// because a virtual processor may be throttled for a while.
double cpu_peak_flops(DType dtype, ThreadPool& pool);

}  // namespace tessera
