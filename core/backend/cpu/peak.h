// SPDX-License-Identifier: Apache-2.0
// The rate at which this machine multiplies large matrices, which utilisation (MFU) is measured
// against. Found by measurement, a few tens of milliseconds, once a process and dtype.
#pragma once

#include "core/backend/cpu/team.h"
#include "core/base/dtype.h"

namespace tessera {

// Floating-point operations a second of the whole team.
double cpu_peak_flops(DType dtype, ThreadTeam& team);

}  // namespace tessera
