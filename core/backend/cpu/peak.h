// SPDX-License-Identifier: Apache-2.0
// The processor's peak, which utilisation (MFU) is measured against: the rate of a loop that
// multiplies and adds in registers alone, on all threads at once. No matrix product is faster.
#pragma once

#include "core/backend/cpu/team.h"
#include "core/base/dtype.h"

namespace tessera {

// Floating-point operations a second of the whole team, at the processor level in force: fused
// multiply-adds of the widest f32 vectors; of bf16, vdpbf16ps or tile products where the level has
// them, else as f32, to which bf16 is widened there. A team of more threads than processors counts
// as one of as many. Measured in a few milliseconds; when asked again after more than a second, it
// is measured again and the larger figure holds, since a virtual processor may be slowed for a
// while.
double cpu_peak_flops(DType dtype, ThreadTeam& team);

}  // namespace tessera
