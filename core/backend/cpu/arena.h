// SPDX-License-Identifier: Apache-2.0
// Memory for the one arena of a device: zeroed, in huge pages where the system gives them, each
// page first touched by the thread that will use it (NUMA).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cpu/thread_pool.h"

namespace tessera {

// Nullptr if more than available_memory() is asked for: memory that the system promises but does
// not have would end in a kill, not in an Error.
std::byte* allocate_pages(int64_t bytes, ThreadPool& pool);
void release_pages(std::byte* memory, int64_t bytes);

// How much memory this process can still take: the least of what the system has free or can free,
// what its control groups allow, and what RLIMIT_AS leaves.
int64_t available_memory();

}  // namespace tessera
