// SPDX-License-Identifier: Apache-2.0
// The CPU device: a thread pool, huge-page memory and the kernels of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/backend.h"

namespace tessera {

// `threads` <= 0: all hardware threads this process may use.
std::unique_ptr<Device> make_cpu_device(int threads);

// `count` devices that share `threads` and the memory of the host; at least one thread each.
std::vector<std::unique_ptr<Device>> make_cpu_devices(int64_t count, int threads);

// Threads that this process may use.
int usable_cpu_threads();

}  // namespace tessera
