// SPDX-License-Identifier: Apache-2.0
// How much memory this process has.
#pragma once

#include <cstdint>

namespace tessera {

// Resident bytes (/proc/self/statm); 0 if the system does not tell.
int64_t resident_bytes();

}  // namespace tessera
