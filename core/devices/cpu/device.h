// SPDX-License-Identifier: Apache-2.0
// The CPU device: a thread pool, huge-page memory and the kernels of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/devices/cpu/thread_pool.h"
#include "core/devices/device.h"

namespace tessera {

// Makes a device; `threads` <= 0: all hardware threads this process may use.
std::unique_ptr<Device> make_cpu_device(int threads);

// Makes `count` devices that share `threads` and the memory of the host; at least one thread each.
std::vector<std::unique_ptr<Device>> make_cpu_devices(int64_t count, int threads,
                                                      int local_rank = 0);

// Makes the kernels of nodes with f64 elements, for which this folder has none: the reference
// interpreter, which registers itself (core/devices/reference/device.cc).
using F64KernelFactory = std::unique_ptr<Kernel> (*)(const Graph& graph, const Node& node);
F64KernelFactory& f64_kernel_factory();

// Allocates the one arena of a device: zeroed, in huge pages where the system gives them, each page
// first touched by the thread that will use it (NUMA). Nullptr for more than available_memory():
// with memory that the system promises but does not have, the process would be killed without an
// Error.
std::byte* allocate_pages(int64_t bytes, ThreadPool& pool);
void release_pages(std::byte* memory, int64_t bytes);

// Returns how much memory this process can still take: the least of the memory that the system has
// free or can free, the limits of its control groups, and the rest of RLIMIT_AS.
int64_t available_memory();

}  // namespace tessera
