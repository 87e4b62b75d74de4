// SPDX-License-Identifier: Apache-2.0
// A CUDA device on fresh virtual GPUs, and a CPU device to compare it with.
#pragma once

#include <memory>
#include <utility>

#include "core/devices/cpu/device.h"
#include "plugins/cuda/device/device.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {

struct TestDevices {
  virtual_gpu::TestGpus gpus;
  std::unique_ptr<Device> gpu = std::move(make_cuda_devices(1, 1)[0]);
  std::unique_ptr<Device> cpu = make_cpu_device(1);
};

}  // namespace tessera::cuda
