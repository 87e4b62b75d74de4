// SPDX-License-Identifier: Apache-2.0
// The device kind "cuda": one GPU a device.
#pragma once

#include <memory>
#include <vector>

#include "core/devices/device.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// `threads` is not used: the host only enqueues.
std::vector<std::unique_ptr<Device>> make_cuda_devices(int64_t count, int threads,
                                                       int local_rank = 0);

// The first of the `count` GPUs, of those that the driver shows, which this process uses:
// `local_rank` processes of the host have as many each. A process that is shown just its own begins
// at 0. Error if there are too few.
int first_gpu(int64_t count, int local_rank);

// The context of a device of that kind.
Context& context_of(Device& device);

}  // namespace tessera::cuda
