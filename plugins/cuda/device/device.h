// SPDX-License-Identifier: Apache-2.0
// The device kind "cuda": one GPU a device.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// GPUs 0 to count - 1 of those that this process sees. `threads` is not used: the host only
// enqueues.
std::vector<std::unique_ptr<Device>> make_cuda_devices(int64_t count, int threads);

// The context of a device of that kind.
Context& context_of(Device& device);

}  // namespace tessera::cuda
