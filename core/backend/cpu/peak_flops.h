// SPDX-License-Identifier: Apache-2.0
// The peak FLOP/s of the processor, the denominator of MFU, measured by a loop of multiply-adds on
// registers on all threads at once. No matrix product is faster.
#pragma once

#include "core/backend/cpu/thread_pool.h"
#include "core/base/dtype.h"

namespace tessera {

// FLOP/s of the whole pool at cpu_level(): fused multiply-adds of the widest f32 vectors; for bf16
// vdpbf16ps or AMX if the level has them, else f32, to which bf16 is then widened. A pool has at
// most the rate of as many threads as processors. The measurement takes a few milliseconds. A call
// more than a second later measures again and keeps the maximum, because a virtual processor may be
// throttled for a while.
double cpu_peak_flops(DType dtype, ThreadPool& pool);

}  // namespace tessera
