// SPDX-License-Identifier: Apache-2.0
// Memory for the one arena of a device: zeroed, in huge pages where the system gives them, its
// pages first touched by the threads that will use them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cpu/thread_pool.h"

namespace tessera {

// Nullptr if this process may not have that much: by what is free, by its control group, or by its
// address-space limit. Promised memory that is not there would end in a kill, not in an Error.
std::byte* allocate_pages(int64_t bytes, ThreadPool& team);
void release_pages(std::byte* memory, int64_t bytes);

// What this process may still take.
int64_t available_memory();

}  // namespace tessera
