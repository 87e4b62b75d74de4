// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace tessera {

// The least of what the system has free or can free, what the control group allows, and
// RLIMIT_AS leaves.
int64_t available_memory();

}  // namespace tessera
